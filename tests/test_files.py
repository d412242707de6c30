"""Output files: whole or not at all, and errors in a sentence."""

import errno
import os

import pytest

from decap.errors import UserError
from decap.files import check_writable, replacing, write_text


def test_a_file_appears_with_its_folders(tmp_path):
  write_text(tmp_path / "a" / "b.txt", "δ̄\n")
  assert (tmp_path / "a" / "b.txt").read_text("utf-8") == "δ̄\n"
  assert os.listdir(tmp_path / "a") == ["b.txt"]


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path):
  path = tmp_path / "figure.png"
  path.write_text("old")
  message = f"Cannot write {path}: No space left on device."
  with pytest.raises(UserError, match=message), replacing(path) as partial:
    assert partial.suffix == ".png"  # matplotlib chooses the format by it.
    partial.write_text("half")
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
  assert path.read_text() == "old"
  assert os.listdir(tmp_path) == ["figure.png"]


def test_other_errors_pass_and_leave_nothing(tmp_path):
  with pytest.raises(ZeroDivisionError), replacing(tmp_path / "x") as partial:
    partial.touch()
    _ = 1 / 0
  assert os.listdir(tmp_path) == []


def test_devices_and_links_are_written_directly(tmp_path):
  write_text("/dev/null", "gone")
  assert not os.path.isfile("/dev/null")
  # As /dev/stdout is one, where the output goes to a file.
  (tmp_path / "target").touch()
  (tmp_path / "link").symlink_to(tmp_path / "target")
  write_text(tmp_path / "link", "text")
  assert (tmp_path / "link").is_symlink()
  assert (tmp_path / "target").read_text() == "text"


def test_a_file_in_the_way_is_named(tmp_path):
  (tmp_path / "file").touch()
  with pytest.raises(UserError, match="Not a directory"):
    check_writable(tmp_path / "file" / "runs")
  with pytest.raises(UserError, match="Cannot write .*file/x.txt"):
    write_text(tmp_path / "file" / "x.txt", "")
  check_writable(tmp_path / "new" / "folder")
  assert os.listdir(tmp_path) == ["file"]
