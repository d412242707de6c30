"""A short look at a policy while it trains: does it follow, walk and comply?

The training loop calls a probe now and then. It has a small environment of its own, in
which every robot is told one of `COMMANDS`, and leaves that of training alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from copy import deepcopy
from typing import TYPE_CHECKING

import torch

from decap.envs.build import make_env
from decap.evaluation.bins import Bins
from decap.evaluation.environment import hold_commands, watch
from decap.evaluation.motion import Motion, finite
from decap.evaluation.protocol import COMMANDS, Protocol, fallen_stops
from decap.evaluation.rollout import run_steps
from decap.evaluation.trajectory import Sample
from decap.evaluation.verdict import MAX_CORRELATION, MAX_FLIGHT
from decap.tasks import undisturbed

if TYPE_CHECKING:
  from decap.envs.constrained_env import ConstrainedEnvCfg
  from decap.evaluation.policies import Act
  from decap.robots.description import RobotDescription

SEED = 0
"""The same robots every time: scores differ by the policy alone."""

KINDS = {
  "slow": ("forward 0.3", "backward 0.3"),
  "medium": ("forward 0.5", "forward 0.7", "backward 0.5"),
  "fast": ("forward 1.0",),
  "sideways": ("left 0.3", "right 0.3"),
  "turning": ("turn left 0.2", "turn right 0.2"),
  "mixed": ("mixed forward", "mixed backward"),
}
"""Commands that are reported together: all but zero."""


class Probe:
  """Measures policies in an environment whose robots are told `COMMANDS`.

  It seeds the global random generators: who trains with them restores them after.

  Args:
    cfg: The config of training, which stays as it is.
    robot: What moves in it.
    robots: Robots for each command.
    steps: Control steps of each; the first second does not count.
  """

  def __init__(
    self,
    cfg: ConstrainedEnvCfg,
    robot: RobotDescription,
    device: str,
    backend: str = "auto",
    *,
    robots: int = 8,
    steps: int = 200,
  ) -> None:
    if steps <= Protocol.warmup:
      raise ValueError(f"a probe needs more than {Protocol.warmup} steps, not {steps}")
    cfg = undisturbed(deepcopy(cfg))
    cfg.scene.num_envs = robots * len(COMMANDS)
    cfg.seed = SEED
    self.env = make_env(cfg, device, backend)
    self.steps = steps
    self._robot = robot
    self._bins = Bins(0, 0, len(COMMANDS), robots)
    watch(self.env, robot)
    self._tell = hold_commands(self.env, robots)

  def __call__(self, act: Act) -> dict[str, float]:
    """Short deterministic rollouts of a policy; a few numbers, none of them NaN.

    - `followed`, `followed/BAND`: mean over commands, each between 0 and 1;
    - `gait`: correlation of the feet's contacts, `flight`: share of time; the mean
      over commands that ask for motion;
    - `falls`: per minute; `fallen_stops`: share of the stops that end in a fall;
      `drift`: m/s at zero command;
    - `violations`, `violations/ROW`: share of steps above a limit; mean over rows;
    - `score`: followed · (1 − violations) · (1 − fallen_stops), halved where it hops.
    """
    env, device = self.env, str(self.env.device)
    segments, feet = len(self._robot.segments), len(self._robot.feet)
    motion = Motion(self._bins, Protocol.warmup, env.step_dt, segments, device, feet)
    rows = env.constraint_manager.cost_names
    above = torch.zeros(1 + len(rows), dtype=torch.float64, device=device)
    age = torch.zeros(env.num_envs, dtype=torch.long, device=device)

    def take(sample: Sample) -> None:
      motion.add(sample, age, finite(sample))
      counts = (age >= Protocol.warmup).double().unsqueeze(1)
      costs = env.extras["constraints"]["costs"]
      costs = torch.cat((torch.ones_like(counts), costs), 1)
      above.add_((costs * counts).sum(0))
      age.add_(1).mul_(~(sample.fell | sample.timed_out))

    run_steps(env, act, self.steps, SEED, take, self._tell)
    env.flush_log()
    counted, *shares = above.tolist()
    violations = {n: s / max(counted, 1) for n, s in zip(rows, shares, strict=True)}
    return _report(motion.result(), violations)

  def close(self) -> None:
    self.env.close()


def _report(
  motion: Mapping[str, torch.Tensor], violations: Mapping[str, float]
) -> dict[str, float]:
  """The numbers of `Probe`, from those of each command."""
  names = list(COMMANDS)
  share = {
    name: motion["followed_yaw" if name.startswith("turn") else "followed"][k]
    for k, name in enumerate(names)
  }
  bands = {
    band: sum(float(share[name].nan_to_num(0.0).clamp(0.0, 1.0)) for name in told)
    / len(told)
    for band, told in KINDS.items()
  }
  moving = [k for k, name in enumerate(names) if name not in ("zero", "stop")]
  falls = motion["falls_per_minute"].nan_to_num(0.0)  # Where no stop was seen whole.
  fallen = fallen_stops(float(falls[names.index("stop")]))
  followed = sum(bands[band] * len(told) for band, told in KINDS.items()) / len(moving)
  gait = float(motion["correlation"][moving].nanmean())
  flight = float(motion["flight"][moving].nan_to_num(1.0).mean())
  mean_violation = sum(violations.values()) / max(len(violations), 1)
  hops = gait > MAX_CORRELATION or flight > MAX_FLIGHT
  score = followed * (1.0 - mean_violation) * (1.0 - fallen) * (0.5 if hops else 1.0)
  report = {
    "score": score,
    "followed": followed,
    **{f"followed/{band}": value for band, value in bands.items()},
    "gait": gait,
    "flight": flight,
    "falls": float(falls.mean()),
    "fallen_stops": fallen,
    "drift": float(motion["drift"][names.index("zero")]),
    "violations": mean_violation,
    **{f"violations/{row}": value for row, value in violations.items()},
  }
  return {name: value for name, value in report.items() if math.isfinite(value)}
