"""`wandb.init(resume=…)`: whether a run goes on that is there, and at which step."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from otel_ml._internal.identity.ranks import detect
from otel_ml._internal.lifecycle.init_arguments import checked
from otel_ml._internal.lifecycle.read_run import name_of
from otel_ml._internal.lifecycle.runtime import RUNTIME
from otel_ml.compat.tracking.not_kept import not_kept
from otel_ml.compat.wandb.errors import UsageError
from otel_ml.wire.rendezvous import run_folder

__all__ = ["goes_on", "name_before", "next_step"]

# The last steps are nearly always at the end of the file; a run of days has gigabytes before.
_TAIL_BYTES = 2**20
_FURTHER = 8


def goes_on(resume: bool | str | None, arguments: Mapping[str, Any]) -> bool:
    """Return whether the run goes on that is there; where a service elsewhere has it, whether it was asked for."""
    asked = resume if resume is not None else os.environ.get("WANDB_RESUME", "")
    run_id = arguments["id"]
    if asked in {True, "auto"} and run_id is None:
        not_kept(f"wandb.init(resume={asked!r})", "a new run begins. Pass the id= of the run that goes on.")
    if not asked or run_id is None:
        return False
    # With `OTEL_ML_*` variables and defaults, as `otel_ml.init()` makes of the same arguments: folder, experiment,
    # rank.
    config = checked(arguments, os.environ)
    is_there = (run_folder(config.dir, config.experiment, run_id) / "metrics.jsonl").is_file()
    rank = detect(os.environ).rank if config.rank is None else config.rank
    # Other ranks start when rank 0 has begun the run already, so its folder says nothing to them; a service elsewhere
    # has the folder.
    if config.is_remote or RUNTIME.is_chosen or rank != 0:
        return asked != "never" and (is_there or config.is_remote)
    if asked == "must" and not is_there:
        raise UsageError(f"resume='must': there is no run {run_id!r} of {config.experiment!r} in {config.dir}.")
    if asked == "never" and is_there:
        raise UsageError(f"resume='never': there is a run {run_id!r} of {config.experiment!r} in {config.dir}.")
    return is_there


def name_before(arguments: Mapping[str, Any]) -> str | None:
    """Return what the run that goes on was called; None where a service elsewhere has it."""
    config = checked(arguments, os.environ)
    folder = run_folder(config.dir, config.experiment, arguments["id"])
    return name_of(folder) if folder.is_dir() else None


def next_step(folder: Path | None) -> int:
    """Return the step after the last one that the run's own rows have: where W&B goes on after a resume."""
    path = None if folder is None else folder / "metrics.jsonl"
    if path is None or not path.is_file():
        return 0
    size, looked_at = path.stat().st_size, _TAIL_BYTES
    # Hours of a monitor's windows, or one long text, may stand behind the last step: then more of the end is read.
    while not (found := _after_the_steps_in(path, size - looked_at)) and looked_at < size:
        looked_at *= _FURTHER
    return found


def _after_the_steps_in(path: Path, begin: int) -> int:
    """Return the step after the largest one from a byte on; 0 where there is none."""
    with path.open("rb") as file:
        file.seek(max(0, begin))
        # The largest, not the last: corrections of older steps come behind newer ones.
        return max((_step_in(line) + 1 for line in file), default=0)


def _step_in(line: bytes) -> int:
    try:
        row = json.loads(line)
        return int(row["step"]) if row.get("axis", "step") == "step" else -1
    except (ValueError, KeyError, TypeError, AttributeError):
        return -1  # the first line of the tail may be the end of one, the last is maybe being written
