"""Small environments of registered tasks."""

from decap.envs.constrained_env import ConstrainedEnv
from decap.tasks import env_cfg


def make_env(
  task: str = "g1-flat", num_envs: int = 8, device: str = "cpu", **edits
) -> ConstrainedEnv:
  """A task's environment; ``edits`` are fields of its config."""
  cfg = env_cfg(task)
  cfg.scene.num_envs = num_envs
  for name, value in {"seed": 0, **edits}.items():
    setattr(cfg, name, value)
  return ConstrainedEnv(cfg, device)
