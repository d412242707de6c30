"""Our tasks in stock mjlab: its environment, its own terms, its training by rsl_rl."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import tempfile
from collections.abc import Callable
from typing import Any

from mjlab.envs import ManagerBasedRlEnv, ManagerBasedRlEnvCfg
from mjlab.envs import mdp as mjlab_mdp
from mjlab.rl import MjlabOnPolicyRunner, RslRlOnPolicyRunnerCfg, RslRlVecEnvWrapper

from benchmarks.machine import quiet_libraries
from decap.envs import mdp
from decap.envs.constrained_env import ConstrainedEnvCfg
from decap.envs.substitutes import OURS, exchange
from decap.sim import simulation_backend

FASTER: dict[Callable, Callable] = {
  mjlab_mdp.base_lin_vel: mdp.base_lin_vel,
  mjlab_mdp.projected_gravity: mdp.projected_gravity,
  mjlab_mdp.joint_pos_rel: mdp.joint_pos_rel,
  mjlab_mdp.joint_vel_rel: mdp.joint_vel_rel,
  mjlab_mdp.flat_orientation_l2: mdp.flat_orientation,
  mjlab_mdp.joint_pos_limits: mdp.joint_pos_limits,
  mjlab_mdp.bad_orientation: mdp.bad_orientation,
}
"""mjlab's term → ours, which takes fewer kernels."""


def stock_twin(cfg: ConstrainedEnvCfg) -> ManagerBasedRlEnvCfg:
  """The same task for mjlab's own environment, with mjlab's own terms where it has them.

  Constraints are dropped. Terms of ours that mjlab does not have stay.
  """
  cfg = copy.deepcopy(cfg)
  names = [field.name for field in dataclasses.fields(ManagerBasedRlEnvCfg)]
  twin = ManagerBasedRlEnvCfg(**{name: getattr(cfg, name) for name in names})
  theirs = {ours: mjlab for mjlab, ours in {**OURS, **FASTER}.items()}
  groups = (group.terms for group in twin.observations.values())
  for terms in (twin.events, twin.curriculum, twin.rewards, twin.terminations, *groups):
    exchange(terms, theirs)
  for command in twin.commands.values():
    # Where an environment of ours was built from the config, it says how.
    vars(command).pop("build", None)
  return twin


class _Enough(Exception):
  """Ends rsl_rl's loop, which has no other end than its number of iterations."""


def train_stock(
  env_cfg: ManagerBasedRlEnvCfg,
  agent_cfg: RslRlOnPolicyRunnerCfg,
  device: str,
  on_log: Callable[[MjlabOnPolicyRunner, dict[str, Any]], bool | None],
) -> None:
  """Train quietly; ``on_log`` sees what each iteration logs, and True ends the run."""
  # On a CPU both run on our engine: it is the training loops that are compared.
  engine = simulation_backend() if device == "cpu" else contextlib.nullcontext()
  agent_cfg.logger, agent_cfg.upload_model = "tensorboard", False
  # Its logger may still write when all is done.
  temporary = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
  with quiet_libraries(), engine, temporary as folder:
    env = ManagerBasedRlEnv(env_cfg, device)
    cfg = dataclasses.asdict(agent_cfg)
    runner = MjlabOnPolicyRunner(RslRlVecEnvWrapper(env), cfg, folder, device)
    runner.logger.git_status_repos = []
    write = runner.logger.log

    def log(**values: Any) -> None:
      write(**values)
      if on_log(runner, values):
        raise _Enough

    runner.logger.log = log  # ty: ignore[invalid-assignment]
    with contextlib.suppress(_Enough):
      runner.learn(agent_cfg.max_iterations, init_at_random_ep_len=True)
    env.close()
