"""The controller's states, as a pure machine: time, requests and faults in, state out.

passive → stand → policy, and from everywhere to damping. Damping latches: only a reset
by hand leads back to passive, and only while nothing is wrong. No robot, no clock and
no policy is needed to test that.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum


class Mode(Enum):
  """What the controller does with the robot."""

  PASSIVE = "passive"
  """Motors damp; nothing moves by itself."""
  STAND = "stand"
  """Moves to the standing pose and holds it."""
  POLICY = "policy"
  """The policy drives."""
  DAMPING = "damping"
  """Stopped: motors damp, requests are refused until a reset."""


DRIVEN = (Mode.STAND, Mode.POLICY)
"""Modes in which a fault stops the robot."""

STAND_S = 3.0
"""Time from any pose to the standing pose."""


@dataclass(frozen=True)
class Requests:
  """What the operator asks for in this cycle."""

  stand: bool = False
  policy: bool = False
  stop: bool = False
  reset: bool = False
  next_policy: bool = False

  def __or__(self, other: Requests) -> Requests:
    pairs = zip(vars(self).values(), vars(other).values(), strict=True)
    return Requests(*(a or b for a, b in pairs))


NONE = Requests()


@dataclass
class Machine:
  """Current mode, since when, and why it stopped."""

  num_policies: int = 1
  stand_s: float = STAND_S
  mode: Mode = Mode.PASSIVE
  since_s: float = 0.0
  policy: int = 0
  """Index of the policy that drives, or will."""
  stop_reason: str = ""
  """Why the robot was stopped last; kept after a reset."""
  events: list[str] = field(default_factory=list)
  """What happened in the last step, in words."""

  def step(self, now_s: float, requests: Requests, fault: str | None) -> bool:
    """Advance by one cycle; returns whether mode or policy changed.

    Args:
      requests: What the operator asks for. A stop wins over everything else.
      fault: What is wrong with robot, network or policy; none if all is well.
    """
    self.events = []
    before = (self.mode, self.policy)
    if requests.stop:
      if self.mode is not Mode.DAMPING:
        self._stop(now_s, "stopped by the operator")
    elif fault and self.mode in DRIVEN:
      self._stop(now_s, fault)
    else:
      self._obey(now_s, requests, fault)
    return (self.mode, self.policy) != before

  def _obey(self, now_s: float, requests: Requests, fault: str | None) -> None:
    names = ("reset", "stand", "policy", "next_policy")
    asked = [name for name in names if getattr(requests, name)]
    for name in asked:
      if name != asked[0]:
        first = asked[0].replace("_", " ")
        refusal = f"{first} was asked for in the same cycle"
      elif self.mode is Mode.DAMPING and name != "reset":
        refusal = f"reset first ({self.stop_reason})"
      else:
        refusal = getattr(self, f"_{name}")(now_s, fault)
      if refusal:
        self.events.append(f"refused {name.replace('_', ' ')}: {refusal}")

  def _reset(self, now_s: float, fault: str | None) -> str:
    if self.mode is not Mode.DAMPING:
      return f"nothing to reset in {self.mode.value}"
    return fault or self._enter(Mode.PASSIVE, now_s)

  def _stand(self, now_s: float, fault: str | None) -> str:
    if self.mode is not Mode.PASSIVE:
      return f"already in {self.mode.value}"
    return fault or self._enter(Mode.STAND, now_s)

  def _policy(self, now_s: float, fault: str | None) -> str:
    del fault  # In stand, a fault has already stopped the robot.
    if self.mode is not Mode.STAND:
      return "stand first" if self.mode is Mode.PASSIVE else "already driving"
    left_s = self.since_s + self.stand_s - now_s
    if left_s > 1e-9:
      return f"still standing up for {left_s:.1f} s"
    return self._enter(Mode.POLICY, now_s)

  def _next_policy(self, now_s: float, fault: str | None) -> str:
    del fault
    if self.num_policies < 2:
      return "there is only one policy"
    self.policy = (self.policy + 1) % self.num_policies
    if self.mode is Mode.STAND:
      self.since_s = now_s  # Its pose may be another one: move there, do not jump.
    self.events.append(f"policy {self.policy + 1} of {self.num_policies}")
    return ""

  def _stop(self, now_s: float, reason: str) -> None:
    self.stop_reason = reason
    self._enter(Mode.DAMPING, now_s)
    self.events.append(f"stop: {reason}")

  def _enter(self, mode: Mode, now_s: float) -> str:
    """Change the mode, which nothing refuses any more."""
    self.events.append(f"{self.mode.value} → {mode.value}")
    self.mode, self.since_s = mode, now_s
    return ""
