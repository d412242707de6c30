"""The whole core must run inside a control step that never waits for the host."""

import subprocess
import sys

import pytest
import torch

from decap import constraints as core
from decap.testing import waits


class ControlStep:
  """Everything the core does in one step, with state."""

  def __init__(self, device: str):
    self.device = device
    self.limit = torch.tensor([5.0, 20.0], device=device)
    self.p_max = torch.tensor([0.5, 0.25], device=device)
    self.action_scale = torch.tensor([0.4, 0.3], device=device)
    self.scale = core.ViolationScale(
      (2,), floor=self.limit * 0.01, decay=0.95, device=device
    )
    groups = {"all": core.BodyGroupCfg((".*",), 0.5)}
    limits = {"rate": {"all": 5.0}}
    self.composition = core.Composition(limits, groups, ("a", "b"), device=device)

  def __call__(self, action: torch.Tensor, prev_action: torch.Tensor) -> torch.Tensor:
    q = core.action_rate(action, prev_action, self.action_scale, dt=0.02)
    self.scale.update(q - self.limit)
    scale, limit = self.scale.value, self.limit
    decap = core.decap_probability(q, limit, self.p_max, scale, rho=0.7, kappa=2.0)
    cat = core.cat_probability(q, limit, self.p_max, scale)
    rows = self.composition.probabilities(self.composition.join({"rate": q}))
    costs = self.composition.costs(q)
    return torch.cat((decap, cat, rows, costs), 1).amax(1)

  def state(self) -> list[torch.Tensor]:
    return [
      self.scale.value,
      self.scale.gain,
      self.composition.scale.value,
    ]


def actions(device: str, steps: int) -> list[torch.Tensor]:
  generator = torch.Generator().manual_seed(0)
  return [torch.randn(64, 2, generator=generator).to(device) for _ in range(steps + 1)]


def test_no_operation_waits_for_the_device():
  step = ControlStep("cpu")
  previous, action, *_ = actions("cpu", 1)
  assert waits(lambda: step(action, previous)) == []


@pytest.mark.gpu
def test_captured_steps_equal_eager_steps():
  eager, captured = ControlStep("cuda"), ControlStep("cuda")
  inputs = actions("cuda", 4)
  # One eager step first: a capture wants warm kernels.
  torch.testing.assert_close(
    eager(inputs[1], inputs[0]), captured(inputs[1], inputs[0])
  )
  action, previous = inputs[1].clone(), inputs[0].clone()
  graph = torch.cuda.CUDAGraph()
  with torch.cuda.graph(graph):
    output = captured(action, previous)
  torch.cuda.set_sync_debug_mode("error")
  try:
    for before, after in zip(inputs[1:-1], inputs[2:], strict=True):
      previous.copy_(before)
      action.copy_(after)
      graph.replay()
      expected = eager(after, before)
  finally:
    torch.cuda.set_sync_debug_mode("default")
  torch.testing.assert_close(output, expected)
  for ours, theirs in zip(captured.state(), eager.state(), strict=True):
    torch.testing.assert_close(ours, theirs)


def test_the_core_needs_torch_alone():
  code = (
    "import sys, decap.constraints; "
    "print([m for m in ('mjlab', 'mujoco', 'warp', 'rsl_rl') if m in sys.modules])"
  )
  done = subprocess.run(
    [sys.executable, "-c", code], capture_output=True, text=True, check=True
  )
  assert done.stdout.strip() == "[]"
