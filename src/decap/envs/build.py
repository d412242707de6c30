"""An environment from its config: quiet, and with a sentence where it cannot be."""

from __future__ import annotations

import contextlib
import io
import sys
from typing import Any

import torch

from decap.envs.constrained_env import ConstrainedEnv
from decap.errors import UserError
from decap.sim.backend import hush_warp


def make_env(
  cfg: Any,
  device: str,
  backend: str = "auto",
  render_mode: str | None = None,
  verbose: bool = False,
) -> ConstrainedEnv:
  """Build the environment, with its config errors as sentences.

  mjlab's tables, and the devices that Warp finds, are on the terminal only where it is
  `verbose`.
  """
  if not verbose:
    hush_warp()
  if device == "cpu":
    # The engine has its own threads; torch's would only fight with them, and a fixed
    # number keeps results independent of the machine.
    torch.set_num_threads(1)
  cfg.backend = backend
  tables = sys.stdout if verbose else io.StringIO()
  try:
    with contextlib.redirect_stdout(tables):
      return ConstrainedEnv(cfg, device, render_mode)
  except ValueError as error:
    raise UserError(f"The environment cannot be built: {error}") from error
  except KeyError as error:  # mjlab's, of a name that its scene or managers lack.
    name = str(error.args[0]).split(" Available:")[0].rstrip(".")
    raise UserError(f"The environment cannot be built: {name}.") from error
