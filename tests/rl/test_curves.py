"""Curves of a run: TensorBoard events, and W&B beside them."""

from tensorboard.summary.writer import event_file_writer

from decap.rl.config import AgentCfg
from decap.rl.curves import Curves


def read_events(folder) -> dict[str, list[tuple[int, float]]]:
  from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

  events = EventAccumulator(str(folder)).Reload()
  return {
    tag: [(e.step, e.value) for e in events.Scalars(tag)]
    for tag in events.Tags()["scalars"]
  }


def test_without_a_folder_nothing_is_written(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  with Curves(None, AgentCfg(), 0) as curves:
    curves({"Train/reward": 1.0}, 1)
  assert not list(tmp_path.iterdir())


def test_a_continued_run_writes_again_what_its_checkpoint_did_not_have(
  tmp_path, monkeypatch
):
  # Files of the same second end in a counter, and their names are sorted as text.
  counter = event_file_writer.AtomicCounter(0)
  monkeypatch.setattr(event_file_writer, "_global_uid", counter)
  for first, values in ((0, (1.0, 2.0, 3.0)), (1, (20.0, 30.0))):
    with Curves(tmp_path, AgentCfg(), first) as curves:
      for i, value in enumerate(values, start=first + 1):
        curves({"Train/reward": value}, i)
  assert read_events(tmp_path)["Train/reward"] == [(1, 1.0), (2, 20.0), (3, 30.0)]


def test_wandb_gets_the_curves_beside_tensorboard(tmp_path, monkeypatch):
  monkeypatch.setenv("WANDB_MODE", "offline")
  monkeypatch.setenv("WANDB_SILENT", "true")
  folder = tmp_path / "2026-01-31_12-00-00_decap_s1"
  folder.mkdir()
  with Curves(folder, AgentCfg(logger="wandb"), 0) as curves:
    curves({"Train/reward": 1.5}, 1)
    curves({"Train/reward": 2.5}, 2)
  (log,) = folder.glob(f"wandb/offline-run-*/run-{folder.name}.wandb")
  assert b"Train/reward" in log.read_bytes()
  assert read_events(folder)["Train/reward"] == [(1, 1.5), (2, 2.5)]
