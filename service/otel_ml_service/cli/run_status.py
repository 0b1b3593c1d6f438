"""How a run stands, as plain data: what `otel-ml runs`, `otel-ml show` and the MCP server say of it."""

from __future__ import annotations

from typing import Any

from otel_ml_service.stored_runs.deliveries import deliveries, delivering, lacking, not_taken
from otel_ml_service.stored_runs.follow_jsonl import UnreadableLineError
from otel_ml_service.stored_runs.losses import losses
from otel_ml_service.stored_runs.quick_history import history_of
from otel_ml_service.stored_runs.read_records import RunUnreadableError
from otel_ml_service.stored_runs.run_folders import RunFolder
from otel_ml_service.stored_runs.run_history import History
from otel_ml_service.stored_runs.status_word import LIVE, standing

__all__ = ["described"]


def described(run: RunFolder) -> dict[str, Any]:
    """Return how a run stands, as plain data."""
    read = _read(run)
    status = None if read is None else read.status
    known = () if standing(run, status) == LIVE else deliveries(run)  # a job that goes on always has some on its way
    found = known or ()
    return {
        "id": run.id,
        "name": run.name,
        "experiment": run.experiment,
        "status": standing(run, status, is_told=known is not None),
        "delivery_known": known is not None,
        "delivering": list(delivering(found)),
        "lacking": list(lacking(found)),
        "not_taken": not_taken(found),
        "lost": {} if read is None else losses(read),
        "steps": read.steps if read is not None else 0,
        "rows": read.rows if read is not None else 0,
        "modified": run.last_record,
        "bytes": run.size(),
        "dir": str(run.path),
    }


def _read(run: RunFolder) -> History | None:
    try:
        return history_of(run)
    except (RunUnreadableError, UnreadableLineError):
        return None
