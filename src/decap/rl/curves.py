"""Where the curves of a run go: TensorBoard events, and W&B as well if asked for."""

from __future__ import annotations

import dataclasses
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from decap.errors import UserError, first_line
from decap.rl.config import AgentCfg


class Curves(AbstractContextManager):
  """Writes the log of every iteration; without a folder, nothing."""

  def __init__(self, run_dir: Path | None, cfg: AgentCfg, iteration: int):
    self._events: Any = None
    self._wandb: Any = None
    if run_dir is None:
      return
    if cfg.logger == "wandb":
      self._wandb = _start_wandb(run_dir, cfg)
    from torch.utils.tensorboard import SummaryWriter

    # What an interrupted run logged after its last checkpoint is logged again.
    purge = iteration + 1 if iteration else None
    self._events = SummaryWriter(str(run_dir), purge_step=purge, flush_secs=10)

  def __exit__(self, *_) -> None:
    if self._events is not None:
      self._events.close()
    if self._wandb is not None:
      import wandb

      # Finishing a run only hands the last data to W&B's own process, which writes them
      # later; ending that process waits until they are on the disk.
      self._wandb.finish()
      wandb.teardown()

  def __call__(self, log: dict[str, float], iteration: int) -> None:
    """Write one iteration."""
    if self._events is not None:
      for name, value in log.items():
        self._events.add_scalar(name, value, iteration)
    if self._wandb is not None:
      self._wandb.log(log, step=iteration)


def _start_wandb(run_dir: Path, cfg: AgentCfg) -> Any:
  """A W&B run named like the folder, which a continued run goes on with.

  Not rsl_rl's writer: it asks for a setting that later releases of wandb refuse.
  """
  import wandb

  try:
    return wandb.init(
      project=cfg.wandb_project,
      id=run_dir.name,
      name=run_dir.name,
      resume="allow",
      dir=run_dir,
      config=dataclasses.asdict(cfg),
    )
  except wandb.Error as error:
    reason = first_line(error)
    raise UserError(f"W&B cannot log this run: {reason}") from error
