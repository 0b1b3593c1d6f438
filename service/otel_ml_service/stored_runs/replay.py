"""Write a recorded run again: its records go through the same pipelines to exporters that may be new to it."""

from __future__ import annotations

import logging
import os
import time
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field

from otel_ml.exceptions import OtelMLError
from otel_ml.explanation import explained
from otel_ml_exporters.exporter import Exporter
from otel_ml_exporters.records import Record, RunInfo, StepRecord
from otel_ml_service.aggregation.engine import Engine
from otel_ml_service.aggregation.settings import EngineSettings
from otel_ml_service.delivery.failure_message import as_sentence
from otel_ml_service.delivery.pipeline import Pipeline
from otel_ml_service.delivery.retries import RetryPolicy
from otel_ml_service.delivery.self_telemetry_filter import Selection, selection_of
from otel_ml_service.storage.outbox import Outbox
from otel_ml_service.stored_runs.recorded_id import recorded_id
from otel_ml_service.stored_runs.run_folders import RunFolder

__all__ = ["ReplayError", "Replayed", "replay", "run_info"]

_log = logging.getLogger(__name__)

_POLL_S = 0.05
_CLOSE_S = 60.0
"""Seconds an exporter gets to close; W&B uploads then."""


class ReplayError(OtelMLError):
    """An exporter did not take the run; the others may have."""

    slug = "replay-unfinished"


@dataclass(frozen=True, slots=True)
class Replayed:
    """What became of one exporter."""

    name: str
    url: str | None
    lost: Mapping[str, int] = field(default_factory=dict)


class _Recorded:
    """Records in memory, as a pipeline reads an outbox."""

    def __init__(self, records: Sequence[Record]) -> None:
        self._records = records
        # A `seq` cannot serve as index: of a run beyond the disk limit the first records are gone.
        self._seqs = [record.seq for record in records]

    @property
    def last_seq(self) -> int:
        return self._seqs[-1] if self._seqs else 0

    @property
    def first_seq(self) -> int:
        return self._seqs[0] if self._seqs else 1

    def read(self, after: int, limit: int) -> Sequence[Record]:
        start = bisect_right(self._seqs, after)
        return self._records[start : start + limit]

    def subscribe(self, name: str, listener: Callable[[], None]) -> None:
        """Do nothing: no record comes later."""


def run_info(run: RunFolder, records: Sequence[Record]) -> RunInfo:
    """Return what the exporters of a run were started for, as far as its folder tells.

    A service that was killed, or a disk, may have left the records whole and its notes damaged.
    """
    started_at = next((record.time for record in records if isinstance(record, StepRecord)), time.time())
    run_id = recorded_id(run)
    of_folder = RunInfo(id=run_id, experiment=run.experiment, name=run.name, dir=run.path, started_at=started_at)
    if not os.access(run.database, os.R_OK | os.W_OK):  # none, or of another user, who lets us read metrics.jsonl
        return of_folder
    try:
        with closing(Outbox(run.database)) as outbox:
            # Tags and notes are in the engine's state; nothing is given to this engine.
            facts = Engine(run_id, EngineSettings(), outbox.state(), kept=outbox.entry).facts
    except Exception as error:  # noqa: BLE001 (as where a service goes on with a run: what an entry holds may be anything)
        _log.warning("%s", explained(f"Tags and notes of run {run.id} cannot be read: {error}", "damaged-file"))
        return of_folder
    return RunInfo(
        id=run_id,
        experiment=facts.experiment_name or run.experiment,
        name=facts.run_name or run.name,
        dir=run.path,
        started_at=facts.started_at or started_at,
        tags=facts.tags,
        notes=facts.notes,
    )


def _nothing(*_: object) -> None:
    """Take what a service would keep."""


def replay(
    records: Sequence[Record],
    info: RunInfo,
    exporters: Mapping[str, Callable[[], Exporter]],
    *,
    timeout: float,
    progress: Callable[[Mapping[str, int]], None],
    failing: Callable[[str], None] = _nothing,
    select: Selection | None = None,
) -> Sequence[Replayed]:
    """Deliver `records` to every exporter. What an exporter's backend holds already is not written again.

    Args:
        records: of the run, in the order of `seq`.
        info: what the exporters are started for.
        exporters: name → builds it.
        timeout: seconds without progress after which an exporter is given up.
        progress: called often with exporter → `seq` delivered.
        failing: called with an exporter that fails and is tried again, once for each problem.
        select: what backends get of a record; by default, of otel_ml's own account what is not as it should be.

    Raises:
        ReplayError: an exporter cannot start, makes no progress, or cannot close; names it and its last problem.
    """
    # The pipelines of a live run, so that batches, retries and refusals are the same in a replay.
    source = _Recorded(records)
    select = select or selection_of(records)
    pipelines = [
        Pipeline(name, make, info, source, mark=_nothing, say=_nothing, retry=RetryPolicy(), select=select)
        for name, make in exporters.items()
    ]
    for pipeline in pipelines:
        pipeline.start()
    try:
        _wait(pipelines, timeout, progress, failing)
    finally:
        for pipeline in pipelines:
            # One that is behind was given up, and gets no more time.
            pipeline.ask_to_stop(_CLOSE_S if pipeline.behind == 0 else 0.0)
        closed = [pipeline.join() for pipeline in pipelines]
    # What is taken is not yet stored: W&B uploads as it closes.
    for pipeline, is_closed in zip(pipelines, closed, strict=True):
        if pipeline.status.problem or not is_closed:
            raise ReplayError(_given_up(pipeline.name, pipeline.status.problem or "It is not closed in time"))
    return [Replayed(pipeline.name, pipeline.status.url, pipeline.status.lost) for pipeline in pipelines]


def _wait(
    pipelines: Sequence[Pipeline],
    timeout: float,
    progress: Callable[[Mapping[str, int]], None],
    failing: Callable[[str], None],
) -> None:
    delivered: Mapping[str, int] = {}
    told: set[tuple[str, str]] = set()
    deadline = time.monotonic() + timeout
    while any(pipeline.behind for pipeline in pipelines):
        now = {pipeline.name: pipeline.status.delivered for pipeline in pipelines}
        if now != delivered:
            # Any progress of any exporter gives all of them the whole time again.
            delivered, deadline = now, time.monotonic() + timeout
            progress(delivered)
        for pipeline in pipelines:
            if pipeline.status.state == "failed" or (pipeline.behind and time.monotonic() > deadline):
                raise ReplayError(_given_up(pipeline.name, pipeline.status.problem or "no progress"))
            problem = pipeline.status.problem
            if problem and (pipeline.name, problem) not in told:
                told.add((pipeline.name, problem))
                failing(pipeline.name)
        time.sleep(_POLL_S)


def _given_up(name: str, why: str) -> str:
    return f"Exporter {name!r}: {as_sentence(why)} Put it right and replay again: nothing is doubled."
