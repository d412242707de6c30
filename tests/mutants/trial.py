"""One process that has imported everything, and forks a child for each mutant.

Imports take ten seconds and most tests a few milliseconds, so tests are collected once,
and a child exchanges the code of a single function in the modules that it inherited.
"""

from __future__ import annotations

import functools
import importlib
import importlib.machinery
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest

from tests.mutants.operators import Mutant

PYTEST = ["-q", "-s", "--tb=no", "-p", "no:cacheprovider", "-W", "ignore"]
BROKEN = "The mutation run itself failed"
WALL_S = 600
"""A child that waits for something that never comes is ended after this time."""


class Baseline:
  """Runs all tests once, and notes which lines each of them runs, and how long.

  What a module's fixture runs counts for all tests that use it, since any of them may
  be the first; its time counts for none.
  """

  def __init__(self, files: Sequence[str]):
    self._files = set(files)
    self._lines: set[tuple[str, int]] = set()
    self._fixture_s = 0.0
    self._fixtures: dict[str, set[tuple[str, int]]] = {}
    self.tests: dict[str, dict[str, Any]] = {}
    self.failed: list[str] = []

  @pytest.hookimpl(wrapper=True)
  def pytest_runtest_protocol(self, item: pytest.Item):
    self._lines, self._fixture_s = set(), 0.0
    threading.settrace(self._trace)
    sys.settrace(self._trace)
    start = time.process_time()
    try:
      return (yield)
    finally:
      sys.settrace(None)
      threading.settrace(None)  # type: ignore[arg-type]
      seconds = time.process_time() - start - self._fixture_s
      found = item._fixtureinfo.name2fixturedefs.values()  # type: ignore
      used = [
        self._fixtures.get(_key(f), set()) for fixtures in found for f in fixtures
      ]
      self.tests[item.nodeid] = {
        "seconds": seconds,
        "lines": sorted(self._lines.union(*used)),
      }

  @pytest.hookimpl(wrapper=True)
  def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef):
    if fixturedef.scope == "function":
      return (yield)
    of_test, self._lines = self._lines, set()
    start, before = time.process_time(), self._fixture_s
    try:
      return (yield)
    finally:
      self._fixture_s = before + time.process_time() - start
      self._fixtures.setdefault(_key(fixturedef), set()).update(self._lines)
      self._lines = of_test

  def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
    if report.failed:
      self.failed.append(report.nodeid)

  def _trace(self, frame, event, arg):
    return self._line if frame.f_code.co_filename in self._files else None

  def _line(self, frame, event, arg):
    self._lines.add((frame.f_code.co_filename, frame.f_lineno))
    return self._line


def _key(fixture: pytest.FixtureDef) -> str:
  return f"{fixture.baseid}::{fixture.argname}"


class Trials:
  """Tries mutants one after another, each in a child of its own."""

  def __init__(self, mutants, take: Callable, tests_of: Callable, done: Callable):
    self._mutants, self._take = mutants, take
    self._tests_of, self._done = tests_of, done

  def pytest_runtestloop(self, session: pytest.Session) -> bool:
    items = {item.nodeid: item for item in session.items}
    while (index := self._take()) is not None:
      mutant = self._mutants[index]
      tests = [items[name] for name in self._tests_of(mutant)]
      self._done(index, *in_child(functools.partial(_hot, session, mutant, tests)))
    return True


def in_child(attempt: Callable[[], str]) -> tuple[str, float]:
  """What ended an attempt in a child ("" where nothing did), and its CPU time."""
  read, write = os.pipe()
  folder = tempfile.mkdtemp(prefix="mutant-")
  child = os.fork()
  if not child:
    _limit()
    tempfile.tempdir = folder
    try:
      answer = attempt()
    except BaseException as error:
      answer = f"{BROKEN}: {error!r}"
    os.write(write, answer.encode()[:4096])
    os._exit(0)
  os.close(write)
  with os.fdopen(read, "rb") as pipe:
    answer = pipe.read().decode()
  _, status, usage = os.wait4(child, 0)
  shutil.rmtree(folder, ignore_errors=True)
  if os.WIFSIGNALED(status):
    answer = signal.Signals(os.WTERMSIG(status)).name
  return answer, usage.ru_utime + usage.ru_stime


def cold(mutant: Mutant, tests: Sequence[str], limit_s: int) -> str:
  """Import everything with a file changed at its top level, then test."""
  code, original = mutant.code(), importlib.machinery.SourceFileLoader.get_code

  def get_code(self, name):
    return code if self.path == mutant.file else original(self, name)

  importlib.machinery.SourceFileLoader.get_code = get_code  # type: ignore
  _limit(limit_s)
  failures = Failures()
  status = pytest.main([*PYTEST, "-x", *tests], plugins=[failures])
  if status == pytest.ExitCode.OK:
    return ""
  return failures.first or f"pytest's exit code {int(status)}"


class Failures:
  """The first test that failed."""

  first = ""

  def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
    if report.failed:
      self.first = self.first or report.nodeid

  def pytest_collectreport(self, report: pytest.CollectReport) -> None:
    if report.failed:
      self.first = self.first or report.nodeid


def _hot(session: pytest.Session, mutant: Mutant, tests: list[pytest.Item]) -> str:
  if not tests:
    return ""
  exchange(mutant)
  factory = session.config._tmp_path_factory  # type: ignore[attr-defined]
  factory._basetemp = Path(tempfile.mkdtemp())
  for item, following in zip(tests, [*tests[1:], None], strict=True):
    item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
    if session.testsfailed:
      return item.nodeid
  return ""


def exchange(mutant: Mutant) -> None:
  """Give the loaded function the mutant's code, wherever it was imported to."""
  name = "decap." + mutant.path.removesuffix(".py").replace("/", ".")
  module = importlib.import_module(name.removesuffix(".__init__"))
  found: Any = module
  code = mutant.code()
  for part in mutant.scope:
    found = vars(found)[part]
    code = _named(code, part)
  _function(found).__code__ = code


def _named(code: CodeType, name: str) -> CodeType:
  """The code of a class or function that is defined in other code.

  Of several with that name, as properties and their setters have, the first.
  """
  return next(
    c for c in code.co_consts if isinstance(c, CodeType) and c.co_name == name
  )


def _function(found: Any) -> FunctionType:
  """The plain function within descriptors and decorators."""
  while not isinstance(found, FunctionType) or hasattr(found, "__wrapped__"):
    for inner in ("fget", "__func__", "func", "__wrapped__"):
      if getattr(found, inner, None) is not None:
        found = getattr(found, inner)
        break
    else:
      raise TypeError(f"no function in {found!r}")
  return found


def _limit(seconds: int = 60) -> None:
  """End this process after so many seconds of work, or far more of waiting."""
  _, hard = resource.getrlimit(resource.RLIMIT_CPU)
  limit = int(time.process_time()) + seconds
  resource.setrlimit(resource.RLIMIT_CPU, (limit, hard))
  signal.alarm(WALL_S)


def save(path: str, value: Any) -> None:
  Path(path).write_text(json.dumps(value))
