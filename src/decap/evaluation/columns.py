"""What the tables show: where each number stands in a metrics file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from decap.evaluation.layout import Layout, title
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

TASK = "Steps with a violation by at least one joint, and task performance"
GROUNDS = "Kinds and levels of ground: following, falls, and steps with a violation (%)"


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


Columns = tuple[Column, ...]
Sections = dict[str, Columns]
Contents = tuple[str, str, Sections]
"""Title of a table, what its sections are, and columns by section."""


def read(metrics: Any, path: Path) -> tuple[float | None, float | None]:
  """Mean and deviation; None where a file, an older one for example, has neither."""
  for key in path:
    metrics = metrics.get(key) if isinstance(metrics, dict) else None
  if isinstance(metrics, dict):
    return metrics.get("mean"), metrics.get("std")
  return metrics, None


def share(
  title: str, path: Path, decimals: int = 2, better: Better = "lower", unit: str = ""
) -> Column:
  """A part of one, in percent."""
  return Column(title, path, decimals, 100.0, better, unit)


def followed(title: str, under: Path = (), name: str = "followed") -> Column:
  """A share of what was commanded."""
  return share(title, (*under, "tracking", name), 0, "whole", "%")


def at(under: Path, columns: Columns) -> Columns:
  """The same quantities where numbers of one command or ground stand."""
  return tuple(replace(column, path=(*under, *column.path)) for column in columns)


FALLS = Column("Falls", ("falls_per_minute",), unit="1/min")
GAIT = (
  Column("Correlation", ("gait", "correlation")),
  share("Flight", ("gait", "flight"), 1, unit="%"),
  share("Double support", ("gait", "double_support"), 0, None, "%"),
  Column("Lift-offs per foot", ("gait", "lift_offs"), 2, 1.0, None, "1/s"),
)
"""Correlation of the feet's contacts, shares of time, and steps."""
WALK = (followed("Followed"), followed("Yaw", (), "followed_yaw"), FALLS, *GAIT)
"""What a single policy follows, and how: a line of its overview."""


def contents(
  layout: Layout, segments: Mapping[str, str], told: str = "random"
) -> Iterator[Contents]:
  """The paper's two tables first, then how they walk, then violations and δ̄.

  Args:
    told: How commands were given where no single one is named.
  """
  groups = layout.groups
  walks = [(name if under else told, under) for name, under in CONDITIONS.items()]
  yield "Smoothness", "Group", {group: smoothness(layout, group) for group in groups}
  yield TASK, "", {"": task(layout)}
  straight = (*_commands("forward", "backward"), followed(told.capitalize()))
  yield "Followed forward and backward", "", {"": straight}
  yield (
    "Followed sideways, turning and mixed; standing",
    "",
    {"": following_others(told)},
  )
  yield "Gait", "Commands", {walk: at(under, GAIT) for walk, under in walks}
  postures = {walk: at(under, posture(segments)) for walk, under in walks}
  yield "Angular velocity (root mean square)", "Commands", postures
  forward = {
    f"{group}, {walk}": at(under, smoothness(layout, group))
    for group in groups
    for walk, under in walks[:2]
  }
  yield "Smoothness while walking forward", "Group", forward
  steps, joint_steps = (
    by_group(layout, lambda n, g, kind=kind: ("violations", g, n, kind))
    for kind in ("any_joint", "joint_steps")
  )
  yield "Steps with a violation by at least one joint (%)", "Group", steps
  yield "Joint-steps with a violation (%)", "Group", joint_steps
  axes = {
    f"{name}, {walk}": at(under, _turning({axis: (segment, axis) for axis in "xyz"}))
    for segment, name in segments.items()
    for walk, under in walks
  }
  yield "Angular velocity by axis (root mean square)", "Body", axes
  jitter = [share(f"Jitter {group}", ("jitter", group), unit="%") for group in groups]
  power = (*jitter, Column("Mean δ̄", ("delta", "mean"), decimals=4))
  yield "Action power above 5 Hz, and DeCap's termination probability", "", {"": power}
  deciding = by_group(layout, lambda n, g: ("delta", "share", f"{n}/{g}"), 0, None)
  yield "Share of δ̄ by the constraint that decides it (%)", "Group", deciding
  yield "Quantities of the whole robot", "", {"": scalars(layout)}
  by_ground = {name: at(("grounds", name), ground(layout)) for name in layout.grounds}
  yield GROUNDS, "Ground", by_ground


def by_group(layout: Layout, path: Callable[[str, str], Path], *looks: Any) -> Sections:
  """A share of every constrained quantity of joints, which stands at path(name, group)."""
  return {
    group: tuple(
      share(title(name, "short"), path(name, group), *looks)
      for name in layout.joint_quantities
    )
    for group in layout.groups
  }


def smoothness(layout: Layout, group: str) -> Columns:
  """The paper's four, acceleration by both time steps, and what else is constrained."""
  return tuple(
    Column(title(name, "paper"), ("smoothness", group, name), unit=layout.unit(name))
    for name in layout.smoothness
  )


def task(layout: Layout) -> Columns:
  """Violations of the paper's two quantities, tracking over random commands, falls."""
  return (
    *(
      share(f"{title(n, 'short')} {g}", ("violations", g, n, "any_joint"), unit="%")
      for n in ("joint_acc", "action_rate")
      if n in layout.joint_quantities
      for g in layout.groups
    ),
    Column("MAE xy", ("tracking", "mae_xy"), unit="m/s"),
    Column("Return xy", ("tracking", "return_xy"), better="higher"),
    followed("Followed"),
    FALLS,
  )


def following_others(told: str) -> Columns:
  """Followed sideways, turning and mixed, and what happens without a command."""
  zero, stops = ("commands", "zero"), ("commands", "stop", "falls_per_minute")
  return (
    *_commands("left", "right", "turn", "mixed"),
    followed(f"{told.capitalize()} yaw", (), "followed_yaw"),
    Column("Drift at zero", (*zero, "drift"), decimals=3, unit="m/s"),
    Column("Lift-offs at zero", (*zero, "gait", "lift_offs"), unit="1/s"),
    Column("Stops that fall", stops, 1, 100.0 * fallen_stops(1.0), unit="%"),
  )


def posture(segments: Mapping[str, str]) -> Columns:
  """Root mean square of angular velocity by part of the body, and the head's jerk."""
  jerk = Column("Head jerk", ("head_jerk",), decimals=0, unit="m/s³")
  return *_turning({name: (s, "norm") for s, name in segments.items()}), jerk


def _turning(shown: Mapping[str, Path]) -> Columns:
  return tuple(
    Column(name, ("angular_velocity", *path), unit="rad/s")
    for name, path in shown.items()
  )


def scalars(layout: Layout) -> Columns:
  """Mean, violations and share of δ̄ of each quantity of the whole robot."""
  return tuple(
    column
    for name in layout.scalars
    for column in (
      Column(title(name), ("scalars", name, "mean"), unit=layout.unit(name)),
      share(f"{title(name)} violations", ("scalars", name, "violations"), unit="%"),
      share(f"{title(name)} share of δ̄", ("delta", "share", name), 0, None, "%"),
    )
  )


def ground(layout: Layout) -> Columns:
  """What is followed on a ground, falls, and steps above each limit."""
  return (
    followed("Followed"),
    FALLS,
    *(
      share(f"{title(n, 'short')} {g}", ("violations", g, n, "any_joint"))
      for g in layout.groups
      for n in layout.joint_quantities
    ),
    *(share(title(n), ("scalars", n, "violations")) for n in layout.scalars),
  )


def _commands(*kinds: str) -> Columns:
  """Followed of all commands of some kinds."""
  # Turning on the spot is followed in yaw; there is nothing else to follow.
  return tuple(
    followed(
      name[0].upper() + name[1:],
      ("commands", name),
      "followed_yaw" if name.startswith("turn") else "followed",
    )
    for name in COMMANDS
    if name.startswith(kinds)
  )
