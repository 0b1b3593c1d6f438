"""How a run stands, in a word: the same one in every command."""

from __future__ import annotations

from otel_ml_service.stored_runs.read_records import is_live
from otel_ml_service.stored_runs.run_folders import RunFolder, is_there
from otel_ml_service.stored_runs.unfinished import MARKS

__all__ = ["LIVE", "NOT_FINISHED", "standing"]

LIVE = "live"
"""The job goes on."""

NOT_FINISHED = "not finished"
"""The service is gone, and was not done with the run."""


def standing(run: RunFolder, status: str | None) -> str:
    """Return how the job ended; before its end `live`, `running` or `not finished`.

    A service keeps a run open for some seconds after the job's end: then the end counts.

    Args:
        run: its folder.
        status: of its last record; None where it cannot be read.
    """
    if status is not None and status != "running":
        return status
    if is_live(run):
        return LIVE
    if status is None:
        return "unreadable"
    return NOT_FINISHED if any(is_there(run.database.with_name(mark)) for mark in MARKS) else status
