"""What a run says of itself over HTTP: how far it is, where it is written to, and what was lost."""

from __future__ import annotations

from typing import Any

from otel_ml.wire.loss_reasons import lost_values
from otel_ml_service.aggregation.outcome import Status
from otel_ml_service.live_runs.live_run import LiveRun

__all__ = ["account"]


def account(run: LiveRun, undecided: int) -> dict[str, Any]:
    """Return what `GET /otel_ml/runs/<id>` says; any thread may ask.

    Args:
        run: an open one.
        undecided: requests that are acknowledged, and not decided yet.
    """
    status = run.status
    exporters = run.pipelines.exporters
    behind = run.pipelines.pending
    lost = {**status.lost}
    for name, exporter in exporters.items():
        # Under the exporter's name, as each may lose the same value for a reason of its own.
        lost |= {f"{name}: {reason}": count for reason, count in exporter.lost.items()}
    there = max(0, status.recorded - status.superseded - sum(lost_values(lost).values()))
    on_its_way = _on_its_way(status, behind, there)
    unstored = status.state != "running" and run.outbox.unsaved  # in a container this service ends with who asks
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
                "pending": run.pipelines.behind(name),
                "state": found.state,
                "problem": found.problem,
                "lost": found.lost,
            }
            for name, found in exporters.items()
        },
        "starting": run.pipelines.are_starting,
        "writers": status.writers,
        "writers_live": status.writers_live,
        "ranks": status.ranks.heard,
        "ranks_expected": status.ranks.expected,
        "recorded": status.recorded,
        "delivered": there - on_its_way if exporters else 0,
        "on_its_way": on_its_way,
        "unreceived": status.unreceived,
        "superseded": status.superseded,
        "lost": lost,
        "pending": behind + status.open_steps + undecided + run.files.waiting + status.unreceived + unstored,
        "files": run.files.waiting,
        "problem": run.trouble.text or None,
        "notices": list(run.outbox.notices),
        "told": run.printed,
        "findings": list(run.findings),
        "last_seq": run.outbox.last_seq,
        "overhead_s": status.overhead_s,
        "duration_s": status.duration_s,
    }


def _on_its_way(status: Status, behind: int, there: int) -> int:
    """Return how many of the values that are not lost are in no backend, or not in all of them.

    What has not arrived, what is in open steps and what waits is counted; of what exporters have still to write only
    the records are known, so it is their share.

    Args:
        status: of the run.
        behind: records that the slowest exporter has still to write.
        there: values that are not lost and not superseded.
    """
    unwritten = status.unreceived + status.counts.open + status.counts.waiting
    written = max(0, there - unwritten)
    if behind and status.last_seq:
        written = written * (status.last_seq - min(behind, status.last_seq)) // status.last_seq
    return there - written
