"""How a run stands, in a word: the same one in every command."""

from __future__ import annotations

from otel_ml_service.stored_runs.read_records import is_live
from otel_ml_service.stored_runs.run_folders import RunFolder, is_there
from otel_ml_service.stored_runs.unfinished import MARKS

__all__ = ["ENDED", "LIVE", "NOT_FINISHED", "UNTOLD", "standing"]

LIVE = "live"
"""The job goes on."""

NOT_FINISHED = "not finished"
"""The service is gone, and was not done with the run."""


ENDED = "ended"
"""The job finished, and nobody here can say whether the run did: what is not delivered is not finished."""

UNTOLD = "a service has it open, and does not say here how far delivery is"
"""Beside the status of a run that has ended."""


def standing(run: RunFolder, status: str | None, *, is_told: bool = True) -> str:
    """Return how the job ended; before its end `live`, `running` or `not finished`.

    A service keeps a run open for some seconds after the job's end: then the end counts.

    Args:
        run: its folder.
        status: of its last record; None where it cannot be read.
        is_told: whether it is known how far delivery is.
    """
    if status == "finished" and not is_told:
        return ENDED
    if status is not None and status != "running":
        return status
    if is_live(run):
        return LIVE
    if status is None:
        return "unreadable"
    return NOT_FINISHED if any(is_there(run.database.with_name(mark)) for mark in MARKS) else status
