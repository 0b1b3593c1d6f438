"""Checkpoints in the run: which file came from which run and step."""

from __future__ import annotations

import json
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import ParamSpec

import otel_ml
from otel_ml import Run
from otel_ml.compat.megatron import distributed
from otel_ml.compat.tracking.unrecordable_arguments import reports_unrecordable
from otel_ml.warn_once import say

__all__ = ["TRACKER_FILE", "on_load_checkpoint_success", "on_save_checkpoint_success"]

TRACKER_FILE = "latest_otel_ml_checkpoint.json"

P = ParamSpec("P")


def _reported(call: Callable[P, None]) -> Callable[P, None]:
    """Say what to give and what to leave out: three originals have a function of this name, each its own arguments."""
    return reports_unrecordable(
        call,
        "checkpoint_path, save_dir, iteration and the run that start() returned, in the order of Megatron Bridge. "
        "Leave out the call of one-logger, as TrainingLog records times of iterations",
    )


@_reported
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
    path, step = Path(checkpoint_path), int(iteration)
    # Before anything is recorded: arguments that are others' are found out here.
    about = {"path": str(path), "iteration": step, "run_id": run.id, "run_name": run.name}
    # `iter_0000100`, as Megatron's folders are named.
    if upload:
        otel_ml.log_checkpoint(path, step=step, aliases=("latest", f"iter_{step:07d}"))
    otel_ml.event("checkpoint.saved", about, step=step)
    try:
        (Path(save_dir) / TRACKER_FILE).write_text(json.dumps(about) + "\n", encoding="utf-8")
    except OSError as error:
        say("compat-megatron", f"The note {TRACKER_FILE} was not written: {error}. The checkpoint is in the run.")


def on_load_checkpoint_success(
    checkpoint_path: str | PathLike[str], load_dir: str | PathLike[str], run: object = None
) -> dict[str, object] | None:
    """Record from which checkpoint, of which run, this one goes on; return the note found in `load_dir`, if any.

    Args:
        checkpoint_path: file or folder.
        load_dir: where the note is.
        run: not needed; Megatron Bridge gives its writer here.
    """
    try:
        found = json.loads((Path(load_dir) / TRACKER_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        found = None
    known = found if isinstance(found, dict) else {}
    if distributed.rank() == 0:
        otel_ml.event("checkpoint.loaded", {"path": str(checkpoint_path), **{f"from.{k}": v for k, v in known.items()}})
    return known or None
