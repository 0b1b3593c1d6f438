"""Can runs be written, and is there room?"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from otel_ml_service.cli.checks.check import Check
from otel_ml_service.cli.figures import size
from otel_ml_service.env import DIR_MAX
from otel_ml_service.stored_runs.run_folders import run_folders
from otel_ml_service.why.wording import plural

__all__ = ["folder_checks"]

_SCARCE = 2**30
"""One GiB: what the engine may hold in open steps, which a crash must find room for."""


def folder_checks(base: Path) -> Iterator[Check]:
    """Yield whether the folder of all runs can be written, how full the disk is, and how much runs take."""
    existing = next(path for path in (base.absolute(), *base.absolute().parents) if path.exists())
    if not os.access(existing, os.W_OK | os.X_OK):
        yield Check("wrong", f"{str(existing)!r} cannot be written", "set OTEL_ML_DIR to a folder of yours")
        return
    free = shutil.disk_usage(existing).free
    if free < _SCARCE:
        yield Check("wrong", f"only {size(free)} are free for {str(base)!r}", "otel-ml gc, or another OTEL_ML_DIR")
    else:
        yield Check("ok", f"{str(base)!r} can be written, {size(free)} are free")
    runs = run_folders(base)
    taken, most = sum(run.size() for run in runs), int(DIR_MAX.read().value)
    verb = "takes" if len(runs) == 1 else "take"
    state = f"{plural(len(runs), 'run')} {verb} {size(taken)} of {size(most)} (OTEL_ML_DIR_MAX)"
    if taken > most:
        yield Check("wrong", state, "otel-ml gc removes the oldest")
    else:
        yield Check("ok", state)
