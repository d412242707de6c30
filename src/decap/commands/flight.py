"""``decap flight``: what the flight recorder wrote, in words or as a table."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_options(parser: argparse.ArgumentParser) -> None:
  """A flight, and where to put its records."""
  parser.add_argument("flight", metavar="FOLDER", help="folder of a flight")
  parser.add_argument("--csv", metavar="FILE", help="write the records as a table")


def run(options: argparse.Namespace) -> None:
  """Events and a summary; all records on request."""
  import numpy as np

  from decap.deploy.recorder import read_events, read_flight

  header, records = read_flight(options.flight)
  for event in read_events(Path(options.flight)):
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
  if options.csv:
    write_csv(options.csv, header, records)
    print(f"Wrote {options.csv}")


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
