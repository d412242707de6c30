"""Several processes: the model's arithmetic, ratios, and one small measurement."""

import pytest

from decap.bench import scaling
from decap.bench.report import Settings
from decap.errors import UserError

REDUCTIONS = {"100": 10, "1000000": 2}


def row(case: str, alone_s: float, together_s: float, **values) -> dict:
  return {
    **{"case": case, "num_envs": 64, "processes": 1, "device": "cpu", "steps": 1536},
    **{"alone_s": alone_s, "together_s": together_s, "reductions": REDUCTIONS},
    **{"alone_cpu_s": None, "together_cpu_s": None, "share": None},
    **{"turns_s": {"alone": [1.0] * 3, "together": [together_s / alone_s] * 3}},
    **({"apart_s": 1.1, "halves_s": 0.55} if case == "two" else {}),
    **values,
  }


def test_a_reduction_is_messages_and_bytes():
  # Eight processes: 2 · 3 messages of 1 ms, and 2 · 7/8 of a gigabyte at 1 GB/s.
  assert scaling.reduction_s(10**9, 8, 1e-3, 1e9) == pytest.approx(0.006 + 1.75)
  assert scaling.reduction_s(10**9, 1, 1e-3, 1e9) == 0.0


def test_the_model_says_that_it_is_one():
  found = scaling.model(REDUCTIONS, iteration_s=1.0, num_envs=100)
  rows = {(r["link"], r["gpus"]): r for r in found["results"]}
  alone, two = rows["NVLink", 1], rows["NVLink", 2]
  assert alone["efficiency"] == 1.0 and alone["steps_per_s"] == 2400
  # 12 reductions of two messages, and their bytes, once through a link.
  seconds = 12 * 2 * 6e-6 + 2_001_000 / 300e9
  assert two["reductions_ms"] == pytest.approx(1e3 * seconds)
  assert two["steps_per_s"] == pytest.approx(4800 / (1.0 + seconds))
  by_speed = [rows[link, 64]["efficiency"] for link in scaling.LINKS]
  assert by_speed == sorted(by_speed, reverse=True)
  assert "not a measurement" in scaling.model_lines(found)[0]
  assert found["is"] == "a model" and len(found["assumptions"]) == 4


def test_overhead_and_speed_up():
  rows = [
    row("one", 1.0, 1.02, share=0.005, alone_share=0.0001),
    row("two", 1.0, 0.5, alone_cpu_s=0.9, together_cpu_s=0.5),
  ]
  found = scaling.summary(rows)
  assert found["overhead"] == pytest.approx(0.02)
  assert (found["share_of_reductions"], found["share_without_group"]) == (0.005, 0.0001)
  assert found["speed_up"] == 2.0
  assert found["speed_up_by_cpu_time"] == pytest.approx(1.8)
  complete = scaling.with_ratios(rows)[1]
  assert complete["steps_per_s"] == 3072.0
  assert (complete["count"], complete["megabytes"]) == (12, 2.001)
  notes = scaling.notes(rows)
  assert "+2.00% of time (± 0.00%); reductions take 0.50% of processor" in notes[0]
  assert notes[0].endswith("without a group 0.010%")
  assert "2.00 × one on one core (1.80 × by processor time" in notes[1]
  # What went wrong is a row, and the rest is said all the same.
  broken = {"case": "two", "num_envs": 64, "error": "RuntimeError: no"}
  assert "speed_up" not in scaling.summary([rows[0], broken])


def test_the_ceiling_is_two_that_know_nothing_of_each_other():
  found = row("two", 1.0, 0.6, processes=2)
  plain = row("one", 1.0, 1.0, alone_share=0.0)
  # Two do in 1.1 s what one does twice in 2 s; halves are a whole in 0.55 s.
  assert scaling.with_ratios([found])[0]["ceiling"] == pytest.approx(2.0 / 1.1)
  told = scaling.summary([plain, found])
  assert told["ceiling"] == pytest.approx(2.0 / 1.1)
  assert told["speed_up_without_reductions"] == pytest.approx(1.0 / 0.55)
  assert "do 1.82 × the work of one; with half" in scaling.notes([plain, found])[2]
  assert "ceiling" not in scaling.summary([plain])


def test_overhead_is_that_of_pairs_of_turns():
  # A machine that grows slower slows both down; the first pair does not count.
  turns = {"alone": [1.0, 1.0, 2.0, 4.0], "together": [9.0, 1.01, 2.04, 4.12]}
  found = scaling.summary([row("one", 2.0, 2.04, turns_s=turns)])
  assert found["overhead"] == pytest.approx(0.02)
  # 1, 2 and 3 %: a deviation of 1 %, of three.
  assert found["overhead_error"] == pytest.approx(0.01 / 3**0.5)
  notes = scaling.notes([row("one", 2.0, 2.04, turns_s=turns)])
  assert notes[0].startswith("One process in a group of one: +2.00% of time (± 0.58%)")


def test_environments_must_divide():
  with pytest.raises(UserError, match="7 environments cannot be shared by 2"):
    next(scaling.measure(Settings("g1-flat", 7, "cpu", 1.0, ("two",))))


@pytest.mark.slow
def test_both_cases_are_measured():
  settings = Settings("g1-flat", 4, "cpu", 0.1, ("one", "two"))
  one, two = scaling.measure(settings)
  for found, processes in ((one, 1), (two, 2)):
    assert "error" not in found
    assert found["processes"] == processes and found["steps"] == 4 * 24
    assert found["alone_s"] > 0.0 and found["together_s"] > 0.0
    # Of each mini-batch the gradients, with the KL of 29 joints, in one.
    largest = max(map(int, found["reductions"]))
    assert largest > 1_000_000 and found["reductions"][str(largest)] == 20
    assert 0.0 <= found["alone_share"] < found["share"] < 0.5
    assert {len(t) for t in found["turns_s"].values()} == {found["turns"]}
  assert set(one["turns_s"]) == {"alone", "together"}
  assert set(two["turns_s"]) == {"alone", "together", "apart", "halves"}


@pytest.mark.gpu
def test_a_gpu_is_measured_under_nccl():
  (found,) = scaling.measure(Settings("g1-flat", 256, "cuda:0", 1.0, ("one",)))
  assert "error" not in found, found
  assert found["alone_s"] > 0.0 and found["together_s"] > 0.0
