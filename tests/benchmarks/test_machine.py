"""The machine that a measurement ran on."""

import os

from benchmarks.machine import describe_machine, physical_cores


def test_of_two_threads_of_a_core_one_is_taken(tmp_path, monkeypatch):
  """Two threads of one core share its arithmetic: they are no two cores."""
  for cpu, siblings in enumerate(("0-1", "0-1", "2-3", "2-3")):
    topology = tmp_path / f"cpu{cpu}" / "topology"
    topology.mkdir(parents=True)
    (topology / "thread_siblings_list").write_text(siblings + "\n")
  monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {3, 1, 2, 0})
  assert physical_cores(tmp_path) == [0, 2]
  # A process that may use one thread of each has two cores all the same.
  monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {1, 3})
  assert physical_cores(tmp_path) == [1, 3]
  # Where the system says nothing, each is a core.
  assert physical_cores(tmp_path / "nothing") == [1, 3]


def test_versions_that_speed_depends_on_are_told():
  found = describe_machine()
  assert found["cores"] == len(os.sched_getaffinity(0))
  assert {"torch", "mujoco", "mjlab"} <= set(found["versions"])  # ty: ignore
