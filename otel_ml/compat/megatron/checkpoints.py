"""Checkpoints in the run: which file came from which run and step."""

from __future__ import annotations

import json
from os import PathLike
from pathlib import Path

import otel_ml
from otel_ml import Run
from otel_ml.compat.megatron import distributed
from otel_ml.warn_once import say

__all__ = ["TRACKER_FILE", "on_load_checkpoint_success", "on_save_checkpoint_success"]

TRACKER_FILE = "latest_otel_ml_checkpoint.json"


def on_save_checkpoint_success(
    checkpoint_path: str | PathLike[str],
    save_dir: str | PathLike[str],
    iteration: int,
    run: Run,
    *,
    upload: bool = True,
) -> None:
    """Record a checkpoint that is complete, and note in `save_dir` which run it is of. Rank 0 does, others return.

    Args:
        checkpoint_path: file or folder.
        save_dir: where the note goes: `latest_otel_ml_checkpoint.json`, one short line.
        iteration: its step.
        run: whose checkpoint it is; `id` is what `otel_ml.init(id=…)` goes on with.
        upload: record the content as an artifact too, else where it is only (`mlflow_log_artifacts=False`).
    """
    if distributed.rank() != 0:
        return
    path = Path(checkpoint_path)
    if upload:
        otel_ml.log_checkpoint(path, step=iteration, aliases=("latest", f"iter_{iteration:07d}"))
    about = {"path": str(path), "iteration": int(iteration), "run_id": run.id, "run_name": run.name}
    otel_ml.event("checkpoint.saved", about, step=iteration)
    try:
        (Path(save_dir) / TRACKER_FILE).write_text(json.dumps(about) + "\n", encoding="utf-8")
    except OSError as error:
        say("compat-megatron", f"The note {TRACKER_FILE} was not written: {error}. The checkpoint is in the run.")


def on_load_checkpoint_success(
    checkpoint_path: str | PathLike[str], load_dir: str | PathLike[str]
) -> dict[str, object] | None:
    """Record from which checkpoint, of which run, this one goes on; return the note found in `load_dir`, if any."""
    try:
        found = json.loads((Path(load_dir) / TRACKER_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        found = None
    known = found if isinstance(found, dict) else {}
    if distributed.rank() == 0:
        otel_ml.event("checkpoint.loaded", {"path": str(checkpoint_path), **{f"from.{k}": v for k, v in known.items()}})
    return known or None
