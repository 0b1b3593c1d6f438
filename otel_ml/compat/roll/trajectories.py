"""Trajectories: some of them as a table in the run, all of them as a file of JSON lines."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import otel_ml

__all__ = ["dump_trajectories", "log_trajectories"]


def log_trajectories(name: str, trajectories: Iterable[Mapping[str, Any]], *, step: int, most: int = 10) -> None:
    """Record the first `most` as a table at `step`."""
    rows = [dict(trajectory) for trajectory, _ in zip(trajectories, range(most), strict=False)]
    if rows:
        otel_ml.log_table(name, rows, step=step)


def dump_trajectories(folder: str | PathLike[str], trajectories: Iterable[Mapping[str, Any]], *, step: int) -> Path:
    """Write all to `<folder>/trajectories_<step>.jsonl`, keep the file in the run, and return its path.

    The file is written in the call, as the program's own output. Writing a step again replaces its file; the files of
    other steps stay.
    """
    path = Path(folder) / f"trajectories_{step}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as file:
        file.writelines(f"{json.dumps(dict(row), default=str)}\n" for row in trajectories)
    otel_ml.log_artifact(path, type="trajectories", step=step)
    return path
