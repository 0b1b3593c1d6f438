"""What a run says of itself over HTTP: how far it is, where it is written to, and what was lost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from otel_ml_exporters.aggregation.outcome import Status
from otel_ml_exporters.experiments.run import ExperimentRun

__all__ = ["account"]


def account(run: ExperimentRun, undecided: int) -> dict[str, Any]:
    """Return what `GET /otel_ml/runs/<id>` says; any thread may ask.

    Args:
        run: an open one.
        undecided: requests that are acknowledged, and not decided yet.
    """
    status = run.status
    exporters = run.exporters
    behind = run.pending
    lost = {**status.lost}
    for name, exporter in exporters.items():
        lost |= {f"{name}: {reason}": count for reason, count in exporter.lost.items()}
    return {
        "id": run.experiment,
        "name": run.info.name,
        "experiment": run.info.experiment,
        "dir": str(run.folder),
        "status": status.state,
        "exporters": {
            name: {
                "url": found.url,
                "delivered_seq": found.delivered,
                "pending": run.behind(name),
                "state": found.state,
                "problem": found.problem,
                "lost": found.lost,
            }
            for name, found in exporters.items()
        },
        "writers": status.writers,
        "writers_live": status.writers_live,
        "recorded": status.recorded,
        "delivered": _delivered(status, behind, lost) if exporters else 0,
        "lost": lost,
        "pending": behind + status.open_steps + undecided,
        "problem": run.trouble.text or None,
        "notices": list(run.outbox.notices),
        "told": run.told,
        "findings": list(run.findings),
        "last_seq": run.outbox.last_seq,
        "overhead_s": status.overhead_s,
        "duration_s": status.duration_s,
    }


_NEVER_RECORDED = ("bad_", "events_", "internal_", "missing_", "spans_")
"""What the reasons begin with for which a call was refused, or which count no values: `recorded` holds none of them."""


def _delivered(status: Status, behind: int, lost: Mapping[str, int]) -> int:
    """Return values that are in every backend; while records are on their way, in proportion to those that are."""
    gone = sum(count for reason, count in lost.items() if not reason.startswith(_NEVER_RECORDED))
    arrived = max(0, status.recorded - gone)
    if behind == 0 or status.last_seq == 0:
        return arrived
    return arrived * (status.last_seq - min(behind, status.last_seq)) // status.last_seq
