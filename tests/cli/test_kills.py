"""Whatever moment a training is killed at, it goes on as if it had not been."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
KILLS = 100


@pytest.mark.slow
def test_a_hundred_kills_lose_nothing(tmp_path):
  """SIGKILL at random moments; what goes on ends bit for bit as the run left alone."""
  command = [sys.executable, "-m", "tests.cli.kills", str(tmp_path), str(KILLS)]
  done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
  assert done.returncode == 0, done.stderr[-2000:]
  result = json.loads(done.stdout.splitlines()[-1])
  assert sum(result["kills"].values()) >= KILLS
  assert result["kills"]["while training"] > KILLS / 4
  assert result["kills"]["while a checkpoint was written"] > KILLS / 20
  assert result["equal"] == result["finished"] > 0
