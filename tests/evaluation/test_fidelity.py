import numpy as np
import pytest

from decap.deploy.bundle import load_bundle
from decap.evaluation import fidelity
from tests.deploy.robots import POLICY


@pytest.mark.slow
def test_both_simulators_agree_at_the_same_step(monkeypatch):
  monkeypatch.setattr(fidelity, "COMMANDS", (0.5,))
  found = fidelity.compare(load_bundle(POLICY))
  assert found["worst_fine_step_m_s"] <= fidelity.TOLERANCE_M_S


def test_the_first_action_hears_the_command(monkeypatch):
  monkeypatch.setattr(fidelity, "SECONDS", 0.02)
  monkeypatch.setattr(fidelity, "COUNTED_S", 0.02)
  bundle, heard = load_bundle(POLICY), []
  act = bundle.act
  monkeypatch.setattr(bundle, "act", lambda obs: heard.append(obs) or act(obs))
  fidelity.training_speeds(bundle, (0.3, 0.8))
  names = [term.name for term in bundle.observations]
  place = sum(term.dim for term in bundle.observations[: names.index("command")])
  scale = bundle.observations[names.index("command")].scale[0]
  assert heard[0][:, place] == pytest.approx([0.3 * scale, 0.8 * scale])


def test_a_blind_policy_walks_in_an_environment_without_a_clock(monkeypatch):
  monkeypatch.setattr(fidelity, "SECONDS", 0.02)
  monkeypatch.setattr(fidelity, "COUNTED_S", 0.02)
  bundle, heard = load_bundle(POLICY), []
  seen = [term for term in bundle.info["observations"] if term["name"] != "clock"]
  bundle.info["observations"] = seen
  act = lambda obs: heard.append(obs) or np.zeros((1, 29), np.float32)  # noqa: E731
  monkeypatch.setattr(bundle, "act", act)
  fidelity.training_speeds(bundle, (0.3,))
  assert heard[0].shape == (1, sum(term["dim"] for term in seen))


def test_table_shows_both_differences():
  row = {
    "command": 0.5,
    "training": 0.4,
    "training_fine_step": 0.44,
    "sim2sim": 0.45,
    "difference": 0.05,
    "difference_fine_step": 0.01,
  }
  lines = fidelity.fidelity_table([{"policy": "p", "rows": [row]}])
  assert lines[-1] == ("| p | 0.5 | 0.400 | 0.440 | 0.450 | +0.050 (+0.010 at 2 kHz) |")
