"""Threads that keep to their cores."""

import os

from decap.sim.threads import _thread_ids, available_cpus
from tests.sim.scenes import native


def test_threads_on_all_cores_keep_to_one_each(g1):
  before = _thread_ids()
  cpus = available_cpus()
  sim = native(g1, num_envs=cpus, num_threads=cpus)
  cores = [os.sched_getaffinity(t) for t in sorted(_thread_ids() - before)]
  assert cores == [{core} for core in sorted(os.sched_getaffinity(0))]
  assert sim.num_threads == len(cores)


def test_few_threads_go_where_they_like(g1, monkeypatch):
  monkeypatch.setattr("decap.sim.threads.available_cpus", lambda: 2)
  before = _thread_ids()
  sim = native(g1, num_envs=2, num_threads=1)
  (thread,) = _thread_ids() - before
  assert os.sched_getaffinity(thread) == os.sched_getaffinity(0)
  assert sim.num_threads == 1
