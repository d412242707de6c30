"""``decap flight``: what the flight recorder wrote, in words or as a table."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional

from decap.files import replacing
from decap.options.args import Args
from decap.options.types import OutputFile, shown


@dataclass(kw_only=True)
class FlightArgs(Args):
  """A flight, and where to put its records."""

  flight: Positional[Annotated[str, shown("FOLDER")]]
  """Folder of a flight."""
  csv: OutputFile = None
  """Write the records as a table."""

  def run(self) -> None:
    """Events and a summary; all records on request."""
    import numpy as np

    from decap.deploy.recorder import read_events, read_flight

    header, records = read_flight(self.flight)
    for event in read_events(Path(self.flight)):
      print(f"{event['time_s']:10.3f} s  {event['event']}")
    if not len(records):
      print("No records.")
      return
    seconds = records["time_s"][-1] - records["time_s"][0]
    print(
      f"{len(records)} records over {seconds:.2f} s, started {header['started']}; "
      f"states in {100 * records['fresh'].mean():.1f} % of the cycles."
    )
    median = np.median(records["latency_ms"], axis=0)
    stages = zip(header["stages"], median, strict=True)
    print("Median latency, ms: " + ", ".join(f"{s} {m:.3f}" for s, m in stages))
    if self.csv:
      write_csv(self.csv, header, records)
      print(f"Wrote {self.csv}")


def write_csv(path: str, header: dict, records) -> None:
  """One row per cycle, one column per value, joints by name."""
  import numpy as np

  joints, columns = header["joint_names"], []
  names = records.dtype.names[:-1]
  parts = [records[name].reshape(len(records), -1) for name in names]
  for name, part in zip(names, parts, strict=True):
    width = part.shape[1]
    of_joints = width == len(joints) and name != "observation"
    labels = joints if of_joints else range(width)
    columns += [name] if width == 1 else [f"{name}.{label}" for label in labels]
  with replacing(path) as partial:
    table = {"fmt": "%.9g", "delimiter": ",", "header": ",".join(columns)}
    np.savetxt(partial, np.hstack(parts), comments="", encoding="utf-8", **table)
