"""Several processes: ratios, the model of the page, and one small measurement."""

import json
import math
import re
from pathlib import Path

import pytest

from benchmarks.cases import SCALING
from benchmarks.report import Report, Settings, measure
from benchmarks.scaling import with_ratios

ROOT = Path(__file__).parents[2]
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


def test_overhead_and_speed_up():
  rows = [
    row("one", 1.0, 1.02, share=0.005, alone_share=0.0001),
    row("two", 1.0, 0.5, alone_cpu_s=0.9, together_cpu_s=0.5, processes=2),
  ]
  one, two = with_ratios(rows)
  assert one["overhead"] == pytest.approx(0.02)
  assert two["speed_up"] == 2.0 and two["steps_per_s"] == 3072.0
  assert two["speed_up_by_cpu"] == pytest.approx(1.8)
  assert (two["count"], two["megabytes"]) == (12, 2.001)
  # Two do in 1.1 s what one does twice in 2 s; halves are a whole in 0.55 s.
  assert two["ceiling"] == pytest.approx(2.0 / 1.1)
  assert two["halves"] == pytest.approx(1.0 / 0.55)
  first, second = Report(SCALING, {}, rows).notes()
  assert "+2.00% of time (± 0.00%), reductions 0.50% of processor time" in first
  assert first.endswith("without a group 0.010%")
  assert "2.00 × one on one core, 1.80 × by processor time, waiting aside" in second
  # What went wrong is a row, and the rest is said all the same; on a GPU no shares.
  broken = {"case": "two", "num_envs": 64, "error": "RuntimeError: no"}
  (only,) = Report(SCALING, {}, [row("one", 1.0, 1.02), broken]).notes()
  assert only.endswith("+2.00% of time (± 0.00%)")


def test_overhead_is_that_of_pairs_of_turns():
  # A machine that grows slower slows both down; the first pair does not count.
  turns = {"alone": [1.0, 1.0, 2.0, 4.0], "together": [9.0, 1.01, 2.04, 4.12]}
  (found,) = with_ratios([row("one", 2.0, 2.04, turns_s=turns)])
  assert found["overhead"] == pytest.approx(0.02)
  # 1, 2 and 3 %: a deviation of 1 %, of three.
  assert found["overhead_error"] == pytest.approx(0.01 / 3**0.5)


def test_the_model_of_the_page_follows_from_what_was_measured():
  """A tree of messages, and bytes of a ring through each link; see docs/scale.md."""
  text = (ROOT / "docs" / "scale.md").read_text("utf-8")
  (iteration_s,) = map(float, re.findall(r"\(([\d.]+) s per iteration", text))
  stored = json.loads((ROOT / "results/bench/scaling.json").read_text())
  reductions = stored["results"][0]["reductions"]
  lines = re.findall(r"^\| .*: (\d+) µs, (\d+) GB/s \|(.*)\|$", text, re.MULTILINE)
  assert len(lines) == 3
  for message_us, gb_per_s, cells in lines:
    shares = []
    for gpus in (2, 8, 64):
      messages_s = 2 * math.ceil(math.log2(gpus)) * float(message_us) * 1e-6
      byte_s = 2 * (gpus - 1) / gpus / (float(gb_per_s) * 1e9)
      reduce_s = sum(n * (messages_s + int(b) * byte_s) for b, n in reductions.items())
      shares.append(f"{iteration_s / (iteration_s + reduce_s):.0%}")
    assert cells.replace(" ", "").split("|") == shares


def test_environments_must_divide():
  found = measure(SCALING, "two", Settings(7))
  assert "7 environments cannot be shared by 2" in found["error"]


@pytest.mark.slow
def test_both_cases_are_measured():
  one, two = (
    measure(SCALING, case, Settings(4, seconds=0.1)) for case in SCALING.cases
  )
  for found, processes in ((one, 1), (two, 2)):
    assert found["error"] is None
    assert found["processes"] == processes and found["steps"] == 4 * 24
    assert found["alone_s"] > 0.0 and found["together_s"] > 0.0
    # Of each mini-batch the gradients, with the KL of 29 joints, in one.
    largest = max(map(int, found["reductions"]))
    assert largest > 1_000_000 and found["reductions"][str(largest)] == 20
    # With four robots, on a busy machine, waiting in them is more than half of all.
    assert 0.0 <= found["alone_share"] < found["share"] < 1.0
    assert {len(t) for t in found["turns_s"].values()} == {found["turns"]}
  assert set(one["turns_s"]) == {"alone", "together"}
  assert set(two["turns_s"]) == {"alone", "together", "apart", "halves"}


@pytest.mark.gpu
def test_a_gpu_is_measured_under_nccl():
  found = measure(SCALING, "one", Settings(256, "cuda:0", seconds=1.0))
  assert found["error"] is None, found
  assert found["alone_s"] > 0.0 and found["together_s"] > 0.0
