"""The same bundle in the training simulator and in sim-to-sim: do they agree?

Both start from the default pose on flat ground, without noise, delay, pushes or
randomisation, and follow the same commands; the mean speed of the last part is
compared. Needs mjlab.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from decap.deploy.bundle import Bundle
from decap.deploy.sim2sim import straight, walk
from decap.deploy.simulation import PHYSICS_DT_S, SimCfg
from decap.errors import UserError
from decap.evaluation.robot_tables import markdown

COMMANDS = (0.3, 0.5, 0.8)
"""Forward speeds that are compared, m/s."""
TOLERANCE_M_S = 0.05
SECONDS, COUNTED_S = 10.0, 6.0


def compare(bundle: Bundle) -> dict[str, Any]:
  """Mean forward speed in both simulators for each of `COMMANDS`.

  The training simulator also runs at sim-to-sim's physics step: what differs then is
  the model, and what differs besides is training's coarser step.
  """
  speeds = {
    "training": training_speeds(bundle, COMMANDS),
    "training_fine_step": training_speeds(bundle, COMMANDS, PHYSICS_DT_S),
    "sim2sim": [sim2sim_speed(bundle, command) for command in COMMANDS],
  }
  rows = []
  for command, *row in zip(COMMANDS, *speeds.values(), strict=True):
    trained, fine, ours = row
    differences = {"difference": ours - trained, "difference_fine_step": ours - fine}
    named = zip(speeds, row, strict=True)
    rows.append({"command": command, **dict(named), **differences})
  worst = max(abs(row["difference"]) for row in rows)
  return {
    "policy": bundle.name,
    "tolerance_m_s": TOLERANCE_M_S,
    "rows": rows,
    "worst_m_s": worst,
    "worst_fine_step_m_s": max(abs(row["difference_fine_step"]) for row in rows),
    "agrees": bool(worst <= TOLERANCE_M_S),
  }


def sim2sim_speed(bundle: Bundle, command: float) -> float:
  """Mean forward speed of the last seconds under the controller, m/s."""
  cfg = SimCfg(delay_s=0.0, noise=0.0)
  trace = walk(bundle, cfg, straight(command, SECONDS, steered=False))
  if trace.fell or trace.stop_reason:
    raise UserError(
      f"{bundle.folder} does not walk at {command:g} m/s: {trace.stop_reason or 'fell'}."
    )
  rows = round(COUNTED_S / trace.control_dt_s)
  return float(trace.arrays["velocity"][-rows:, 0].mean())


def fidelity_table(found: Sequence[dict[str, Any]]) -> list[str]:
  """Markdown: speeds in m/s."""
  header = ["policy", "command", "training", "training at 2 kHz", "sim-to-sim"]
  rows = [
    [
      result["policy"],
      f"{row['command']:g}",
      *(f"{row[name]:.3f}" for name in ("training", "training_fine_step", "sim2sim")),
      f"{row['difference']:+.3f} ({row['difference_fine_step']:+.3f} at 2 kHz)",
    ]
    for result in found
    for row in result["rows"]
  ]
  return markdown([*header, "difference"], rows)


def training_speeds(
  bundle: Bundle, commands: Sequence[float], physics_dt_s: float | None = None
) -> list[float]:
  """Mean forward speed of the last seconds in training's environment, m/s, [commands].

  A `physics_dt_s` replaces its physics step.
  """
  import torch

  from decap.envs.build import make_env
  from decap.evaluation.environment import command_term

  env = make_env(_plain_cfg(bundle, len(commands), physics_dt_s), "cpu")
  env.reset(seed=0)
  command = command_term(env).command.zero_()
  command[:, 0] = torch.tensor(commands)
  obs: Any = env.observation_manager.compute(update_history=True)  # The command is new.
  wanted = sum(term.dim for term in bundle.observations)
  if obs["actor"].shape[1] != wanted:
    raise UserError(
      f"{bundle.folder} observes {wanted} numbers, but its task "
      f"{bundle.info['task']} now has {obs['actor'].shape[1]}."
    )
  speeds = []
  steps, counted = (round(t / env.step_dt) for t in (SECONDS, COUNTED_S))
  for step in range(steps):
    action = torch.from_numpy(bundle.act(obs["actor"].numpy()))
    obs = env.step(action)[0]
    if step >= steps - counted:
      speeds.append(env.scene["robot"].data.root_link_lin_vel_b[:, 0].tolist())
  env.close()
  return [float(value) for value in np.mean(speeds, axis=0)]


def _plain_cfg(bundle: Bundle, num_envs: int, physics_dt_s: float | None) -> Any:
  """The task's play variant without anything random, one command for ever."""
  from decap.runs import RunSpec, build_configs

  info = bundle.info
  blind = "clock" not in [term.name for term in bundle.observations]
  spec = RunSpec(info["task"], info["method"], 0, blind=blind)
  cfg, _ = build_configs(spec, play=True)
  cfg.scene.num_envs = num_envs
  for name in ("friction", "torso_mass"):
    cfg.events.pop(name, None)
  cfg.events["reset_joints"].params["velocity_range"] = (0.0, 0.0)
  cfg.events["reset_base"].params["pose_range"] = {}
  if physics_dt_s is not None:
    cfg.decimation = round(cfg.decimation * cfg.sim.mujoco.timestep / physics_dt_s)
    cfg.sim.mujoco.timestep = physics_dt_s
  twist: Any = cfg.commands["twist"]
  twist.resampling_time_range = (1e9, 1e9)
  setattr(twist, "rel_standing_envs", 0.0)  # noqa: B010 (not every command has it)
  return cfg
