"""One run, one writer: live locks are refused, those of dead processes taken over."""

import errno
import os
import subprocess
import sys
import textwrap

import pytest

from decap.errors import UserError
from decap.lock import LOCK_FILE, one_writer


def _holder(folder) -> subprocess.Popen:
  """Another process that holds the lock until it is told to end."""
  script = textwrap.dedent(f"""
    from pathlib import Path
    from decap.lock import one_writer
    with one_writer(Path({str(folder)!r})):
      print("held", flush=True)
      input()
  """)
  process = subprocess.Popen(
    [sys.executable, "-c", script],
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
    text=True,
  )
  assert process.stdout is not None and process.stdout.readline() == "held\n"
  return process


def test_a_second_writer_is_refused_until_the_first_ends(tmp_path):
  process = _holder(tmp_path)
  sentence = rf"is being trained by process {process.pid} on .* since 20..-"
  with pytest.raises(UserError, match=sentence), one_writer(tmp_path):
    pass
  process.communicate("\n")
  with one_writer(tmp_path):
    pass


def test_the_lock_of_a_killed_process_is_taken_over(tmp_path):
  process = _holder(tmp_path)
  process.kill()
  process.wait()
  assert str(process.pid) in (tmp_path / LOCK_FILE).read_text()
  with one_writer(tmp_path), pytest.raises(UserError, match="one run has one writer"):
    with one_writer(tmp_path):
      pass


def test_an_error_inside_releases_it(tmp_path):
  with pytest.raises(KeyError), one_writer(tmp_path):
    raise KeyError
  (tmp_path / LOCK_FILE).write_text("damaged")
  with one_writer(tmp_path):
    pass


def test_a_folder_that_is_not_there_is_named(tmp_path):
  with pytest.raises(UserError, match="No such file"), one_writer(tmp_path / "gone"):
    pass


def test_a_full_disk_locks_too(tmp_path, monkeypatch):
  def full(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

  monkeypatch.setattr(os, "pwrite", full)
  with one_writer(tmp_path), pytest.raises(UserError, match="by another process"):
    with one_writer(tmp_path):
      pass
