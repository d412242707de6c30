"""Body groups: joint-name patterns that decide which limit and p_max a joint has."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch


@dataclass
class BodyGroupCfg:
  """Joints that share their limits and their p_max."""

  joint_names: tuple[str, ...]
  """Regular expressions; each must match the whole name of at least one joint."""
  p_max: float
  """Termination probability at the limit, in (0, 1) (p_i^max of Eq. 4)."""


def resolve_groups(
  groups: Mapping[str, BodyGroupCfg], joint_names: Sequence[str]
) -> dict[str, list[int]]:
  """Joint indices of each group, in the order of `joint_names`.

  Every joint must be in exactly one group: a joint left out by a typo would go
  unconstrained without a sign.
  """
  resolved: dict[str, list[int]] = {}
  owner: dict[str, str] = {}
  for group, cfg in groups.items():
    if not 0.0 < cfg.p_max < 1.0:
      raise ValueError(f"Group '{group}': p_max must be in (0, 1), got {cfg.p_max}.")
    members = _matches(group, cfg.joint_names, joint_names)
    for joint in members:
      if joint in owner:
        raise ValueError(
          f"Joint '{joint}' is in two groups, '{owner[joint]}' and '{group}'."
        )
      owner[joint] = group
    resolved[group] = [i for i, name in enumerate(joint_names) if name in members]
  orphans = [name for name in joint_names if name not in owner]
  if orphans:
    raise ValueError(
      f"Joints in no group: {', '.join(orphans)}. Groups: {', '.join(groups) or 'none'}."
    )
  return resolved


def per_joint(
  values: Mapping[str, float], resolved: Mapping[str, Sequence[int]], num_joints: int
) -> torch.Tensor:
  """Spread one positive value per group over the joints. # [J]"""
  unknown = [name for name in values if name not in resolved]
  if unknown:
    raise ValueError(
      f"Unknown group '{unknown[0]}'; the groups are {', '.join(resolved)}."
    )
  spread = torch.full((num_joints,), math.nan)  # [J]
  for group, joints in resolved.items():
    if group not in values:
      raise ValueError(f"Group '{group}' has no value; got {dict(values)}.")
    value = values[group]
    if not 0.0 < value < math.inf:
      raise ValueError(f"Group '{group}': expected a finite value > 0, got {value}.")
    spread[list(joints)] = float(value)
  return spread


def _matches(
  group: str, patterns: Sequence[str], joint_names: Sequence[str]
) -> set[str]:
  if isinstance(patterns, str) or not patterns:
    raise ValueError(
      f"Group '{group}': joint_names must be a tuple of patterns, got {patterns!r}."
    )
  members: set[str] = set()
  for pattern in patterns:
    try:
      matched = {name for name in joint_names if re.fullmatch(pattern, name)}
    except re.error as error:
      raise ValueError(f"Group '{group}': bad pattern '{pattern}': {error}.") from error
    if not matched:
      raise ValueError(
        f"Group '{group}': pattern '{pattern}' matches no joint; the joints are "
        f"{', '.join(joint_names)}."
      )
    members |= matched
  return members
