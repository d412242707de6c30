"""What a run asks of a cluster: the section `cluster` of a sweep file."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from decap.sweep import values

TEXTS = ("partition", "account", "qos", "constraint", "gpu")
KEYS = (
  *TEXTS,
  *("gpus", "cpus", "memory", "time", "grace", "parallel", "setup", "options"),
)


@dataclass(frozen=True)
class Resources:
  """A job's share of the cluster."""

  partition: str | None = None
  account: str | None = None
  qos: str | None = None
  constraint: str | None = None
  gpu: str | None = None
  """Type of GPU, as the cluster calls it; None takes any."""
  gpus: int = 1
  """GPUs of each run, which trains on all of them."""
  cpus: int = 4
  memory_gb: float | None = None
  """None leaves it to the cluster."""
  time_s: float = 4 * 3600.0
  """Longest time of a job; then it saves, goes back into the queue, and goes on."""
  grace_s: float = 120.0
  """How long before that it is told: an iteration and a checkpoint must fit."""
  parallel: int | None = None
  """Jobs at a time; None is all."""
  setup: tuple[str, ...] = ()
  """Shell commands before each job, such as ``module load cuda``."""
  options: dict[str, Any] = field(default_factory=dict)
  """Further options of sbatch."""

  def submitit(self, device: str, parallel: int) -> dict[str, Any]:
    """Parameters of submitit's SLURM executor, for so many jobs at a time."""
    parameters: dict[str, Any] = {
      "job_name": "decap",
      "time": max(1, math.ceil(self.time_s / 60)),
      "signal_delay_s": round(self.grace_s),
      "cpus_per_task": self.cpus,
      # Since SLURM 22.05 a step does not inherit this, and would have one core.
      "srun_args": [f"--cpus-per-task={self.cpus}"],
      "array_parallelism": parallel,
      "setup": list(self.setup) or None,
      "additional_parameters": dict(self.options) or None,
      "mem": f"{self.memory_gb:g}G" if self.memory_gb else None,
      "partition": self.partition,
      "account": self.account,
      "qos": self.qos,
      "constraint": self.constraint,
    }
    if device != "cpu":
      kind = f"gpu:{self.gpu}" if self.gpu else "gpu"
      parameters["gres"] = f"{kind}:{self.gpus}"
    return {name: value for name, value in parameters.items() if value is not None}


def read_resources(data: Mapping[str, Any]) -> Resources:
  """Check the section; what is left out has a default."""
  values.check_keys(data, KEYS)
  found: dict[str, Any] = {name: str(data[name]) for name in TEXTS if name in data}
  for key in ("gpus", "cpus", "parallel"):
    if key in data:
      found[key] = values.whole(data, key, 1)
  if "memory" in data:
    found["memory_gb"] = values.positive(data, "memory")
  for key in ("time", "grace"):
    if key in data:
      found[f"{key}_s"] = values.parse_duration(data[key])
  if "setup" in data:
    found["setup"] = tuple(str(line) for line in values.as_list(data["setup"]))
  if "options" in data:
    found["options"] = values.mapping(data, "options")
  return Resources(**found)
