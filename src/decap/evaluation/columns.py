"""Columns of the tables: where each number stands in a metrics file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from decap.evaluation.layout import QUANTITIES, Layout, short_title, title
from decap.evaluation.protocol import COMMANDS, fallen_stops

Path = tuple[str, ...]
Better = Literal["lower", "higher", "whole"] | None
"""Which of two values is better: "whole" is the one nearer to 100; None: neither is."""

CONDITIONS: dict[str, Path] = {
  "0.5 m/s": ("commands", "forward 0.5"),
  "1.0 m/s": ("commands", "forward 1.0"),
  "random": (),
}
"""What gait and posture are compared under, and where their numbers stand."""


@dataclass(frozen=True)
class Column:
  """A quantity of a table: where it comes from and which direction is better."""

  title: str
  path: Path
  """Keys from `metrics` to a summary with mean and std, or to a number."""
  decimals: int = 2
  factor: float = 1.0
  better: Better = "lower"
  unit: str = ""

  def read(self, metrics: Any) -> tuple[float | None, float | None]:
    """Mean and deviation; None where a file, an older one for example, has neither."""
    for key in self.path:
      metrics = metrics.get(key) if isinstance(metrics, dict) else None
    if isinstance(metrics, dict):
      return metrics.get("mean"), metrics.get("std")
    return metrics, None


def smoothness(layout: Layout, group: str, under: Path = ()) -> tuple[Column, ...]:
  """The paper's four, acceleration by both time steps, and what else is constrained."""
  return tuple(
    Column(
      QUANTITIES[name].paper if name in QUANTITIES else title(name),
      (*under, "smoothness", group, name),
      unit=layout.unit(name),
    )
    for name in layout.smoothness
  )


def paper_violations(layout: Layout) -> tuple[Column, ...]:
  """The paper's two quantities; further ones of a task have a table of their own."""
  return tuple(
    _share(
      f"{short_title(name)} {group}", ("violations", group, name, "any_joint"), unit="%"
    )
    for name in ("joint_acc", "action_rate")
    if name in layout.joint_quantities
    for group in layout.groups
  )


def violations(layout: Layout, group: str, kind: str) -> tuple[Column, ...]:
  """Every quantity of a group; kind is "any_joint" or "joint_steps"."""
  return tuple(
    _share(short_title(name), ("violations", group, name, kind))
    for name in layout.joint_quantities
  )


def scalars(layout: Layout) -> tuple[Column, ...]:
  """Quantities of the whole robot."""
  columns: list[Column] = []
  for name in layout.scalars:
    text, share = title(name), ("delta", "share", name)
    columns += (
      Column(text, ("scalars", name, "mean"), unit=layout.unit(name)),
      _share(f"{text} violations", ("scalars", name, "violations"), unit="%"),
      _share(f"{text} share of δ̄", share, 0, None, "%"),
    )
  return tuple(columns)


def task() -> tuple[Column, ...]:
  """Tracking over random commands, and falls."""
  return (
    Column("MAE xy", ("tracking", "mae_xy"), unit="m/s"),
    Column("Return xy", ("tracking", "return_xy"), better="higher"),
    _followed("Followed", ()),
    Column("Falls", ("falls_per_minute",), unit="1/min"),
  )


def following_straight() -> tuple[Column, ...]:
  """Followed forward and backward, and over random commands."""
  names = [name for name in COMMANDS if name.startswith(("forward", "backward"))]
  return (*(_command(name) for name in names), _followed("Random", ()))


def following_others() -> tuple[Column, ...]:
  """Followed sideways, turning and mixed, and what happens without a command."""
  names = [name for name in COMMANDS if name.startswith(("left", "right", "turn"))]
  names += [name for name in COMMANDS if name.startswith("mixed")]
  zero, stops = ("commands", "zero"), ("commands", "stop", "falls_per_minute")
  return (
    *(_command(name) for name in names),
    _followed("Random yaw", (), "followed_yaw"),
    Column("Drift at zero", (*zero, "drift"), decimals=3, unit="m/s"),
    Column("Lift-offs at zero", (*zero, "gait", "lift_offs"), unit="1/s"),
    Column("Stops that fall", stops, 1, 100.0 * fallen_stops(1.0), unit="%"),
  )


def gait(under: Path = ()) -> tuple[Column, ...]:
  """Correlation of the feet's contacts, shares of time, and steps."""
  return (
    Column("Correlation", (*under, "gait", "correlation")),
    _share("Flight", (*under, "gait", "flight"), 1, unit="%"),
    _share("Double support", (*under, "gait", "double_support"), 0, None, "%"),
    Column("Lift-offs per foot", (*under, "gait", "lift_offs"), 2, 1.0, None, "1/s"),
  )


def posture(segments: Mapping[str, str], under: Path = ()) -> tuple[Column, ...]:
  """Root mean square of angular velocity by part of the body, and the head's jerk."""
  return (
    *(
      Column(name, (*under, "angular_velocity", s, "norm"), unit="rad/s")
      for s, name in segments.items()
    ),
    Column("Head jerk", (*under, "head_jerk"), decimals=0, unit="m/s³"),
  )


def axes(segment: str, under: Path = ()) -> tuple[Column, ...]:
  """Angular velocity by axis of a segment's own frame."""
  return tuple(
    Column(axis, (*under, "angular_velocity", segment, axis), unit="rad/s")
    for axis in "xyz"
  )


def jitter(groups: Sequence[str]) -> tuple[Column, ...]:
  """Action power above 5 Hz, and mean δ̄."""
  return (
    *(_share(f"Jitter {group}", ("jitter", group), unit="%") for group in groups),
    Column("Mean δ̄", ("delta", "mean"), decimals=4),
  )


def delta_share(layout: Layout, group: str) -> tuple[Column, ...]:
  """Which constraint decides δ̄."""
  return tuple(
    _share(short_title(name), ("delta", "share", f"{name}/{group}"), 0, None)
    for name in layout.joint_quantities
  )


def cost() -> tuple[Column, ...]:
  """What training took; only where its curve was read beside the metrics."""
  return (
    Column("Samples", ("cost", "samples"), 1, 1e-6, None, "M"),
    Column("Wall clock", ("cost", "seconds"), 1, 1 / 60, None, "min"),
    Column("Runs side by side", ("cost", "side_by_side"), 0, better=None),
    Column("GPU time", ("cost", "gpu_seconds"), 1, 1 / 60, "lower", "min"),
    _share("δ̄ applied", ("cost", "applied"), better=None, unit="%"),
  )


def walk(under: Path) -> tuple[Column, ...]:
  """What a single policy follows, and how: a line of its overview."""
  return (
    _followed("Followed", under),
    _followed("Yaw", under, "followed_yaw"),
    Column("Falls", (*under, "falls_per_minute"), unit="1/min"),
    *gait(under),
  )


def _command(name: str) -> Column:
  # Turning on the spot is followed in yaw; there is nothing else to follow.
  what = "followed_yaw" if name.startswith("turn") else "followed"
  return _followed(name[0].upper() + name[1:], ("commands", name), what)


def _followed(title: str, under: Path, name: str = "followed") -> Column:
  return _share(title, (*under, "tracking", name), 0, "whole", "%")


def _share(
  title: str, path: Path, decimals: int = 2, better: Better = "lower", unit: str = ""
) -> Column:
  """A part of one, in percent."""
  return Column(title, path, decimals, 100.0, better, unit)
