"""What an engine hands back: what to commit in one transaction, and how things stand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from otel_ml_exporters.records import Record
from otel_ml_service.aggregation.observation import Sent
from otel_ml_service.aggregation.output import NamedFile
from otel_ml_service.aggregation.role_ranks import RanksHeard

__all__ = ["Counts", "Holder", "Outcome", "RunFacts", "Status"]


class Counts(NamedTuple):
    """Points (and spans) so far; `received` = `closed` + `open` + `waiting` + `duplicate` + `superseded` + `too_late`.

    Attributes:
        received: points that arrived, duplicates included.
        open: points of windows that are still open.
        closed: points that are part of an exported row.
        waiting: late points of a closed window of which the correction is not out yet, and points without a step.
        duplicate: the same identity again; changed nothing.
        superseded: points of an older attempt or of an incarnation that was replaced.
        too_late: points of steps whose fold state is gone; in `late.otlp`.
        amended: values that changed after they were exported.
        steps_redone: steps closed again by a later attempt.
        overflow: points of scraped series beyond the budget.
        quantile_coarse: quantiles from buckets wider than scale 6.
        ignored: points of others that carry nothing new: an older time, an empty histogram, a baseline.
        spans: spans delivered.
        events: log records taken.
    """

    received: int = 0
    open: int = 0
    closed: int = 0
    waiting: int = 0
    duplicate: int = 0
    superseded: int = 0
    too_late: int = 0
    amended: int = 0
    steps_redone: int = 0
    overflow: int = 0
    quantile_coarse: int = 0
    ignored: int = 0
    spans: int = 0
    events: int = 0


class Holder(NamedTuple):
    """A step that is open, and the ranks it waits for."""

    role: str
    axis: str
    step: int
    attempt: int
    ranks: tuple[int, ...]
    open_s: float


class Status(NamedTuple):
    """How a run stands; for self-telemetry and `GET /otel_ml/runs`.

    Attributes:
        state: `running`, or how the run ended.
        writers: processes that sent anything of our own, children not counted.
        writers_live: of these, not ended, not replaced, heard within the last `end_silence_s`.
        ranks: of the newest attempt of each role that were heard, and how many there are.
        recorded: values the users' programs recorded, as far as they have said.
        superseded: of these, values that a later attempt or incarnation recorded again.
        unreceived: of these, values that have not arrived and are waited for.
        lost: reason → values: dropped in workers and here, or never arrived (`loss_account.py`).
        open_steps: windows not closed yet.
        open_bytes: memory of open windows.
        retained_bytes: memory of closed windows kept for late data.
        holding: open windows beyond the allowed lateness.
        overhead_s: seconds spent on users' threads, summed over writers that sent their shutdown messages.
        duration_s: seconds these writers ran, summed.
        last_seq: `seq` of the newest record.
        left: instances of the writers that sent their shutdown messages.
        last_writer: instance of the writer that sent its shutdown message last, or None while one is live.
    """

    state: str
    writers: int
    writers_live: int
    ranks: RanksHeard
    recorded: int
    superseded: int
    unreceived: int
    lost: Mapping[str, int]
    open_steps: int
    open_bytes: int
    retained_bytes: int
    holding: tuple[Holder, ...]
    overhead_s: float
    duration_s: float
    last_seq: int
    left: frozenset[str]
    last_writer: str | None
    counts: Counts


class RunFacts(NamedTuple):
    """What the resources of the writers say about the run, for `RunInfo`; the lowest (role, rank) that says it."""

    experiment_name: str
    run_name: str
    started_at: float
    tags: tuple[str, ...]
    notes: str | None


class Outcome(NamedTuple):
    """What `Engine.take()` hands over; commit `records` and `changes` together.

    Attributes:
        records: `seq` ascends without gaps from the last outcome's.
        changes: state entry → its new bytes, or None where it is gone.
        notices: sentences for a person; each is reported once in the life of the run.
        too_late: to be appended to `late.otlp`.
        files: `seq` of an `Artifact` with `local=None` → its content; the service writes the file and fills in `local`.
        named: artifacts whose files are to be looked for; each is to be handed to `Engine.found()`.
    """

    records: tuple[Record, ...]
    changes: Mapping[str, bytes | None]
    notices: tuple[str, ...]
    too_late: tuple[Sent, ...]
    files: Mapping[int, bytes]
    named: tuple[NamedFile, ...] = ()
