"""Terms of environments: rewards, terminations, events, commands, constraints.

What mjlab has in the same form is repeated here only where it costs many kernels; for
the rest: ``from mjlab.envs import mdp``.
"""

from decap.envs.mdp.commands import (
  MASKED_COMMANDS,
  MaskedCommandTerm,
  VelocityCommand,
)
from decap.envs.mdp.constraints import (
  action_rate,
  body_angular_speed,
  contact_force,
  joint_acc,
  joint_acc_control,
  joint_qacc,
  joint_torque,
  joint_vel,
  tilt,
)
from decap.envs.mdp.curricula import MASKED_CURRICULA, command_ranges, terrain_levels
from decap.envs.mdp.events import (
  MASKED_EVENTS,
  add_body_mass,
  push_by_setting_velocity,
  randomize_terrain,
  reset_joints_by_offset,
  reset_root_on_terrain,
  reset_root_state_uniform,
  reset_scene_to_default,
)
from decap.envs.mdp.observations import (
  base_lin_vel,
  gait_clock,
  joint_pos_rel,
  joint_vel_rel,
  projected_gravity,
)
from decap.envs.mdp.rewards import (
  TrackMeanVelocity,
  base_height,
  flat_orientation,
  foot_clearance,
  foot_slide,
  gait,
  joint_deviation,
  joint_pos_limits,
  roll_pitch_rate,
  track_velocity_xy,
  track_velocity_yaw,
  undesired_contacts,
  vertical_velocity,
)
from decap.envs.mdp.terminations import bad_orientation, base_below
from decap.envs.mdp.terrain import terrain_height

__all__ = [
  "MASKED_COMMANDS",
  "MASKED_CURRICULA",
  "MASKED_EVENTS",
  "MaskedCommandTerm",
  "TrackMeanVelocity",
  "VelocityCommand",
  "action_rate",
  "add_body_mass",
  "bad_orientation",
  "base_below",
  "base_height",
  "base_lin_vel",
  "body_angular_speed",
  "command_ranges",
  "contact_force",
  "flat_orientation",
  "foot_clearance",
  "foot_slide",
  "gait",
  "gait_clock",
  "joint_acc",
  "joint_acc_control",
  "joint_deviation",
  "joint_pos_limits",
  "joint_pos_rel",
  "joint_qacc",
  "joint_torque",
  "joint_vel",
  "joint_vel_rel",
  "projected_gravity",
  "push_by_setting_velocity",
  "randomize_terrain",
  "reset_joints_by_offset",
  "reset_root_on_terrain",
  "reset_root_state_uniform",
  "reset_scene_to_default",
  "roll_pitch_rate",
  "terrain_height",
  "terrain_levels",
  "tilt",
  "track_velocity_xy",
  "track_velocity_yaw",
  "undesired_contacts",
  "vertical_velocity",
]
