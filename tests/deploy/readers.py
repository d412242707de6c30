"""Readers of others' formats, written by the rules of the programs that load them.

They share nothing with the writers in decap.deploy, and are themselves tested on files
written by hand.
"""

import math

import yaml


class RlLab:
  """Unitree RL lab's controller: what it sends to which motor, what it observes."""

  def __init__(self, text: str):
    cfg = yaml.safe_load(text)
    self.map = cfg["joint_ids_map"]
    self.step_dt = cfg["step_dt"]
    self.default = cfg["default_joint_pos"]
    # Set by slot, without the map.
    self.kp = dict(enumerate(cfg["stiffness"]))
    self.kd = dict(enumerate(cfg["damping"]))
    action = cfg["actions"]["JointPositionAction"]
    assert action["joint_ids"] is None and action["clip"] is None
    self.scale, self.offset = action["scale"], action["offset"]
    self.ranges = cfg["commands"]["base_velocity"]["ranges"]
    self.terms = cfg["observations"]
    self.phase = 0.0

  def targets(self, actions):
    """Motor slot → position target."""
    return {
      slot: a * s + o
      for slot, a, s, o in zip(self.map, actions, self.scale, self.offset, strict=True)
    }

  def observe(self, q, dq, gyro, gravity, stick, last_action):
    """The policy's input; q and dq are by motor slot."""
    clamp = lambda v, r: min(max(v, r[0]), r[1])  # noqa: E731
    values = {
      "base_ang_vel": lambda p: gyro,
      "projected_gravity": lambda p: gravity,
      "velocity_commands": lambda p: [
        clamp(v, self.ranges[n])
        for v, n in zip(stick, ("lin_vel_x", "lin_vel_y", "ang_vel_z"), strict=True)
      ],
      "joint_pos_rel": lambda p: [
        q[s] - d for s, d in zip(self.map, self.default, strict=True)
      ],
      "joint_vel_rel": lambda p: [dq[s] for s in self.map],
      "last_action": lambda p: last_action,
      "gait_phase": self._gait,
    }
    found = []
    for name, term in self.terms.items():
      raw = values[name](term["params"])
      if term["clip"] is not None:
        raw = [clamp(v, term["clip"]) for v in raw]
      assert term["history_length"] == 1 and len(term["scale"]) == len(raw)
      found += [v * s for v, s in zip(raw, term["scale"], strict=True)]
    return found

  def _gait(self, params):
    self.phase = math.fmod(self.phase + self.step_dt / params["period"], 1.0)
    return [math.sin(2 * math.pi * self.phase), math.cos(2 * math.pi * self.phase)]


class MjlabMetadata:
  """mjlab's properties: comma-separated, entries of entries by semicolons."""

  def __init__(self, properties: dict[str, str]):
    def numbers(key):
      return [float(v) for v in properties[key].split(",")]

    names = properties["joint_names"].split(",")
    self.kp = dict(zip(names, numbers("joint_stiffness"), strict=True))
    self.kd = dict(zip(names, numbers("joint_damping"), strict=True))
    self.default = dict(zip(names, numbers("default_joint_pos"), strict=True))
    self.scale = dict(zip(names, numbers("action_scale"), strict=True))
    self.observations = properties["observation_names"].split(",")
    self.commands = properties["command_names"].split(",")
    self.obs_scale = [
      [float(v) for v in part.split(";")]
      for part in properties["observation_terms_scale"].split(",")
    ]
    self.clip = [
      tuple(float(v) for v in part.split(";"))
      for part in properties["observation_terms_clip"].split(",")
    ]
    self.names = names
