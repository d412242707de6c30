"""The metrics of a trajectory by NumPy and plain loops, written from the definitions.

It shares no code with `decap`: only the arrays and the numbers of the layout.
"""

import numpy as np

NAMES = ("action_rate", "joint_acc", "joint_torque", "joint_vel")
"""What follows from the log of any robot."""


def joint_names_of(layout):
  """Quantities with a limit per group."""
  return [n for n, limit in layout.limits.items() if isinstance(limit, dict)]


def episode_steps(fell, timed_out):
  """Steps that each episode had before each step."""
  steps, batch = fell.shape
  age = np.zeros((steps, batch), dtype=int)
  for b in range(batch):
    for t in range(1, steps):
      ended = fell[t - 1, b] or timed_out[t - 1, b]
      age[t, b] = 0 if ended else age[t - 1, b] + 1
  return age


def quantities(a, layout, age):
  """name -> [T, B, J] in float64."""
  action = a["action"].astype(float) * np.array(layout.action_scale)
  velocity, torque = a["joint_vel"].astype(float), a["joint_torque"].astype(float)
  rate, slow_acc = np.zeros_like(action), np.zeros_like(action)
  for t in range(1, len(action)):
    going_on = (age[t] > 0)[:, None]
    rate[t] = np.abs(action[t] - action[t - 1]) / layout.control_dt * going_on
    change = np.abs(velocity[t] - velocity[t - 1])
    slow_acc[t] = change / layout.control_dt * going_on
  before = a["joint_vel_before"].astype(float)
  measured = {
    n: a[f"quantity/{n}"].astype(float)
    for n in joint_names_of(layout)
    if f"quantity/{n}" in a
  }
  return measured | {
    "action_rate": rate,
    "joint_acc": np.abs(velocity - before) / layout.physics_dt,
    "joint_torque": np.abs(torque),
    "joint_vel": np.abs(velocity),
    "joint_acc_20ms": slow_acc,
    "energy": np.abs(torque * velocity),
  }


def over_rollouts(values, valid, rollout):
  """Mean and sample standard deviation over rollouts of per-step values [T, B]."""
  rollout = np.array(rollout)
  means = []
  for r in sorted(set(rollout)):
    mine = rollout == r
    means.append(values[:, mine][valid[:, mine]].mean())
  std = np.std(means, ddof=1) if len(means) > 1 else 0.0
  return np.mean(means), std


def per_joint(values, layout):
  """A value per group, spread over the joints of each group."""
  group_of = {j: group for group, joints in layout.groups.items() for j in joints}
  return [values[group_of[j]] for j in range(len(layout.joint_names))]


def termination_probability(q, layout, names):
  """[T, B, Q, J] by Eq. 4, with ρ 0.7, κ 2, the scale's decay 0.95, floor 1 % of ε."""
  limit = np.array([per_joint(layout.limits[n], layout) for n in names])
  return probability(q, limit, np.array(per_joint(layout.p_max, layout)))


def probability(q, limit, p_max):
  """Eq. 4 of values [T, B, ...] and limits [...]."""
  delta = np.zeros_like(q)
  scale = None
  for t in range(len(q)):
    largest = np.maximum((q[t] - limit).max(0), 0.01 * limit)
    scale = largest if scale is None else 0.95 * scale + 0.05 * largest
    ratio = q[t] / limit
    u = (ratio - 0.7) / 0.3
    below = np.where(ratio < 0.7, 0.0, (1 - (1 - u) ** 2) * p_max)
    above = p_max + (1 - p_max) * np.clip((q[t] - limit) / scale, 0, 1)
    delta[t] = np.where(ratio < 1, below, above)
  return delta


def welch(signal, age, warmup, rate_hz, window=128):
  """One-sided density [F, C] of [T, B, C]: centred Hann windows that overlap by half."""
  hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(window) / window)
  total, count = 0.0, 0
  for end in range(window, len(signal) + 1, window // 2):
    for b in range(signal.shape[1]):
      if age[end - 1, b] + 1 - warmup < window:
        continue
      piece = signal[end - window : end, b].astype(float)
      piece = (piece - piece.mean(0)) * hann[:, None]
      total = total + np.abs(np.fft.rfft(piece, axis=0)) ** 2
      count += 1
  density = total / count / (rate_hz * (hann**2).sum())
  density[1:-1] *= 2
  return density


def metrics(trajectory):
  """The figures that the tests compare, as flat name -> number."""
  a, layout = trajectory.arrays, trajectory.layout
  rollout, warmup = trajectory.rollout, trajectory.protocol["warmup"]
  age = episode_steps(a["fell"], a["timed_out"])
  valid, always = age >= warmup, np.ones_like(age, dtype=bool)
  q = quantities(a, layout, age)
  out = {}
  for group, indices in layout.groups.items():
    chosen = list(indices)
    for name, values in q.items():
      if name == "joint_torque":  # Limited, but no smoothness metric.
        continue
      stats = over_rollouts(values[:, :, chosen].mean(2), valid, rollout)
      out[f"{group}/{name}"], out[f"{group}/{name}/std"] = stats
    for name in joint_names_of(layout):
      above = q[name][:, :, chosen] > layout.limits[name][group]
      share = over_rollouts(above.any(2).astype(float), valid, rollout)
      out[f"{group}/{name}/any"], out[f"{group}/{name}/any/std"] = share
      out[f"{group}/{name}/joints"] = over_rollouts(above.mean(2), valid, rollout)[0]
  error = a["command"].astype(float) - a["base_velocity"].astype(float)
  distance = np.hypot(error[..., 0], error[..., 1])
  columns = {
    "error_x": abs(error[..., 0]),
    "error_y": abs(error[..., 1]),
    "error_xy": distance,
    "error_yaw": abs(error[..., 2]),
    "mae_xy": (abs(error[..., 0]) + abs(error[..., 1])) / 2,
    "return_xy": 1.5 * np.exp(-(distance**2) / 0.25) * layout.control_dt * 1000,
  }
  for name, values in columns.items():
    out[name], out[f"{name}/std"] = over_rollouts(values, always, rollout)
  minutes = a["fell"].size * layout.control_dt / 60
  out["falls"] = a["fell"].sum() / minutes
  out |= _delta(q, a, layout, valid, rollout)
  out |= walking(a, layout, age, warmup, rollout)
  if age.max() >= 128 + warmup:
    out |= _jitter(a, layout, age, warmup)
  return out


def walking(a, layout, age, warmup, rollout, fixed=False):
  """Following, gait, angular velocity, jerk and drift: mean over rollouts by name.

  With `fixed` commands a robot that is told to stand is measured, too.
  """
  bins = [np.flatnonzero(np.array(rollout) == r) for r in sorted(set(rollout))]
  parts = [_walking_of(a, layout, age, warmup, envs, fixed) for envs in bins]
  out = {name: np.mean([part[name] for part in parts]) for name in parts[0]}
  for name in ("followed", "followed_yaw"):
    values = [part[name] for part in parts]
    out[f"{name}/std"] = np.std(values, ddof=1) if len(values) > 1 else 0.0
  return out


def _walking_of(a, layout, age, warmup, envs, fixed):
  dt, steps = layout.control_dt, len(age)
  share, told, yaw, told_yaw, moved, seconds = [], 0, 0.0, 0.0, 0.0, 0.0
  contacts, lifted, turning, jerk = [], 0, [], []
  for b in envs:
    falls = np.flatnonzero(a["fell"][:, b])
    start = None
    for t in range(steps):
      command = a["command"][t, b].astype(float)
      velocity = a["base_velocity"][t, b].astype(float)
      awake = age[t, b] >= warmup
      fell_before = any(f == t - age[t, b] - 1 for f in falls)
      falling = any(t <= f < t + 50 for f in falls)
      if awake or fell_before:
        done = awake and not falling
        speed = np.hypot(*command[:2])
        if speed >= 0.1:
          told += 1
          share.append(velocity[:2] @ command[:2] / speed**2 if done else 0.0)
        told_yaw += command[2] ** 2
        yaw += velocity[2] * command[2] if done else 0.0
      if not awake:
        continue
      if fixed or np.linalg.norm(command) >= 0.1:
        now = a["contact"][t, b]
        contacts.append(now)
        if age[t, b] > 0:
          lifted += (a["contact"][t - 1, b] & ~now).sum()
      turning.append(a["angular_velocity"][t, b].astype(float))
      if age[t, b] >= 3:
        third = np.diff(a["head_position"][t - 3 : t + 1, b].astype(float), 3, axis=0)
        jerk.append((third**2).sum() / dt**6)
      place = a["base_position"][t, b, :2].astype(float)
      start = place if age[t, b] == warmup else start
      ended = a["fell"][t, b] or a["timed_out"][t, b]
      if ended or t == steps - 1:
        moved += np.linalg.norm(place - start)
        seconds += (age[t, b] - warmup) * dt
  left, right = np.array(contacts).T
  turning = np.array(turning)
  with np.errstate(invalid="ignore"):
    correlation = np.corrcoef(left, right)[0, 1]
  return {
    "followed": np.sum(share) / told if told else np.nan,
    "followed_yaw": yaw / told_yaw if told_yaw else np.nan,
    "gait/correlation": correlation,
    "gait/flight": (~left & ~right).mean(),
    "gait/double_support": (left & right).mean(),
    "gait/lift_offs": lifted / (2 * len(contacts) * dt),
    "angular_velocity/x": np.sqrt((turning[:, 0, 0] ** 2).mean()),
    "angular_velocity/norm": np.sqrt((turning[:, 0] ** 2).sum(1).mean()),
    "head_jerk": np.sqrt(np.mean(jerk)),
    "drift": moved / seconds,
  }


def _delta(q, a, layout, valid, rollout):
  names = joint_names_of(layout)
  delta = termination_probability(np.stack([q[n] for n in names], 2), layout, names)
  scalars = {
    f"share/{n}": probability(
      a[f"quantity/{n}"].astype(float), limit, layout.scalar_p_max[n]
    )
    for n, limit in layout.limits.items()
    if n not in names
  }
  worst = np.max([delta.max((2, 3)), *scalars.values()], axis=0)
  out = {"delta": over_rollouts(worst, valid, rollout)[0]}
  rows = {
    f"share/{name}/{group}": delta[:, :, i][:, :, list(indices)].max(2)
    for i, name in enumerate(names)
    for group, indices in layout.groups.items()
  } | scalars
  tied = sum((row == worst).astype(float) for row in rows.values())
  part = {n: (worst * (row == worst) / tied)[valid].sum() for n, row in rows.items()}
  return out | {name: value / sum(part.values()) for name, value in part.items()}


def _jitter(a, layout, age, warmup):
  rate = 1 / layout.control_dt
  density = welch(a["action"] * np.array(layout.action_scale), age, warmup, rate)
  frequency = np.arange(len(density)) * rate / 128
  out = {}
  for group, indices in layout.groups.items():
    power = density[:, list(indices)].sum(1)
    out[f"jitter/{group}"] = power[frequency > 5].sum() / power.sum()
  return out
