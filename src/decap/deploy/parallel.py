"""Independent walks of one policy on several cores, results in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from itertools import repeat
from pathlib import Path
from typing import Any, TypeVar

from decap.deploy.bundle import Bundle, load_bundle

R = TypeVar("R")


def in_order(
  work: Callable[..., R], bundle: Bundle, tasks: Iterable[tuple[Any, ...]], jobs: int
) -> Iterator[R]:
  """`work(bundle, *task)` of every task; a function of a module where jobs > 1.

  Processes are started afresh: a copy of one with a running ONNX session may hang.
  """
  if jobs <= 1:
    yield from (work(bundle, *task) for task in tasks)
    return
  from concurrent.futures import ProcessPoolExecutor
  from multiprocessing import get_context

  with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
    yield from pool.map(_elsewhere, repeat(work), repeat(bundle.folder), tasks)


def _elsewhere(work: Callable[..., R], folder: Path, task: tuple[Any, ...]) -> R:
  """A process walks with one policy again and again, and reads it once."""
  return work(_loaded(folder), *task)


_loaded = lru_cache(maxsize=1)(load_bundle)
