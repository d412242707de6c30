"""``decap flight``: what the flight recorder wrote, in words or as a table."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional

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
  from decap.files import replacing

  joints = header["joint_names"]
  columns, rows = [], []
  for name in records.dtype.names[:-1]:
    values = records[name].reshape(len(records), -1)
    if values.shape[1] == 1:
      labels = [name]
    elif values.shape[1] == len(joints):
      labels = [f"{name}.{joint}" for joint in joints]
    else:
      labels = [f"{name}.{i}" for i in range(values.shape[1])]
    columns += labels
    rows.append(values)
  with replacing(path) as partial, partial.open("w", encoding="utf-8") as file:
    file.write(",".join(columns) + "\n")
    for row in zip(*rows, strict=True):
      file.write(",".join(f"{v:.9g}" for part in row for v in part) + "\n")
