"""Independent walks on several cores, results in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import TypeVar

from decap.deploy.bundle import load_bundle

loaded = lru_cache(maxsize=1)(load_bundle)
"""A process walks with one policy again and again, and reads it once."""

T = TypeVar("T")
R = TypeVar("R")


def in_order(work: Callable[[T], R], tasks: Iterable[T], jobs: int) -> Iterator[R]:
  """`work` of every task; `work` must be a function of a module where jobs > 1.

  Processes are started afresh: a copy of one with a running ONNX session may hang.
  """
  if jobs <= 1:
    yield from map(work, tasks)
    return
  from concurrent.futures import ProcessPoolExecutor
  from multiprocessing import get_context

  with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
    yield from pool.map(work, tasks)
