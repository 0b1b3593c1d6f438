"""How a run stands, in a word: the same one in every command."""

from __future__ import annotations

from otel_ml_service.stored_runs.read_records import is_live
from otel_ml_service.stored_runs.run_folders import RunFolder, is_there
from otel_ml_service.stored_runs.run_history import History
from otel_ml_service.stored_runs.unfinished import MARKS

__all__ = ["NOT_FINISHED", "standing"]

NOT_FINISHED = "not finished"
"""The service is gone, and was not done with the run."""


def standing(run: RunFolder, read: History | None) -> str:
    """Return how the job ended; before its end `live`, `running` or `not finished`.

    A service keeps a run open for some seconds after the job's end: then the end counts.

    Args:
        run: its folder.
        read: what the run's records amount to; None where they cannot be read.
    """
    if read is not None and read.status != "running":
        return read.status
    if is_live(run):
        return "live"
    if read is None:
        return "unreadable"
    return NOT_FINISHED if any(is_there(run.database.with_name(mark)) for mark in MARKS) else read.status
