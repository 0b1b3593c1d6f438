"""How a run stands, for people and for self-telemetry."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

from otel_ml_service.aggregation.closing import ClosingTrigger
from otel_ml_service.aggregation.loss_account import lost_of, recorded_in, unreceived_of
from otel_ml_service.aggregation.observation import Writer
from otel_ml_service.aggregation.outcome import Counts, Holder, RunFacts, Status
from otel_ml_service.aggregation.role_ranks import ranks_heard
from otel_ml_service.aggregation.run_state import RunState
from otel_ml_service.aggregation.spans import SpanIntake

__all__ = ["facts_of", "status_of"]

_ORDER = attrgetter("writer.role", "writer.rank", "number")


def facts_of(run: RunState) -> RunFacts:
    """Return what the resources say about the run: the lowest (role, rank) that says it.

    What training says comes before what a Collector stamps on engines and nodes: whoever set that up need not know.
    Tags of a later launch of that rank are added to the earlier ones; its notes replace them.
    """
    states = sorted(run.writers, key=_ORDER)
    ordered = [state.writer for native in (True, False) for state in states if state.native is native]
    return RunFacts(
        experiment_name=next((w.experiment_name for w in ordered if w.experiment_name), ""),
        run_name=next((w.run_name for w in ordered if w.run_name), ""),
        started_at=_started_at(run),
        tags=tuple(dict.fromkeys(tag for writer in _launches(ordered, "tags") for tag in writer.tags)),
        notes=next((writer.notes for writer in reversed(_launches(ordered, "notes"))), None),
    )


def _launches(ordered: Sequence[Writer], name: str) -> Sequence[Writer]:
    """Return the writers of the lowest (role, rank) that says `name`, those that say it, the oldest first."""
    saying = [writer for writer in ordered if getattr(writer, name)]
    return [writer for writer in saying if (writer.role, writer.rank) == (saying[0].role, saying[0].rank)]


def counts_of(run: RunState, spans: SpanIntake) -> Counts:
    """Return the points of all streams, by what became of them."""
    totals: dict[str, int] = {}
    for stream in run.step_streams.streams.values():
        for name, count in stream.tally.counts().items():
            totals[name] = totals.get(name, 0) + count
    return Counts(
        **totals,
        open=sum(window.count for attempt in run.step_streams for window in attempt.open.values()),
        waiting=sum(window.waiting for attempt in run.step_streams for window in attempt.retained.values()),
        spans=spans.delivered,
        events=run.events,
    )


def status_of(run: RunState, state: str, spans: SpanIntake, closing_trigger: ClosingTrigger) -> Status:
    """Return how the run stands."""
    counts = counts_of(run, spans)
    own = [writer for writer in run.writers if writer.native and not writer.child]
    live = run.live()
    gone = [writer for writer in own if writer.shutdown_message is not None]
    # Whose shutdown message was heard last: whoever asked before that was told that others are live, and did not wait.
    last = max(gone, key=lambda w: (w.heard_at, w.shutdown_message.time_ns if w.shutdown_message else 0), default=None)
    return Status(
        state=state,
        writers=len(own),
        writers_live=len(live),
        ranks=ranks_heard(own),
        recorded=recorded_in(run),
        superseded=run.superseded,
        unreceived=0 if state != "running" else sum(map(unreceived_of, run.writers)),
        lost=lost_of(run, at_end=state != "running"),
        open_steps=sum(len(attempt.open) for attempt in run.step_streams),
        open_bytes=run.open_bytes,
        retained_bytes=run.retained_bytes,
        holding=_holding(run, closing_trigger),
        overhead_s=sum(w.shutdown_message.overhead_s for w in gone if w.shutdown_message is not None),
        duration_s=sum(w.shutdown_message.duration_s for w in gone if w.shutdown_message is not None),
        last_seq=run.output.seq,
        left=frozenset(writer.writer.instance for writer in run.writers if writer.has_left),
        last_writer=None if live or last is None else last.writer.instance,
        counts=counts,
    )


def _holding(run: RunState, closing_trigger: ClosingTrigger) -> tuple[Holder, ...]:
    held: list[Holder] = []
    for attempt in run.step_streams:
        window = attempt.oldest
        if window is None or window.due is not None or run.active - window.opened < run.settings.allowed_lateness_s:
            continue
        holders = closing_trigger.decide(attempt, window, run.active).holders
        ranks = tuple(sorted({run.writers[number].writer.rank for number in holders}))
        open_s = run.active - window.opened
        held.append(Holder(attempt.stream.role, attempt.stream.axis, window.step, attempt.ordinal, ranks, open_s))
    return tuple(held)


def _started_at(run: RunState) -> float:
    """Return when the first point was recorded, or the run was first heard where that is earlier."""
    heard = run.started_at if run.started_at is not None else run.now
    return heard if run.origin_ns is None else min(heard, run.origin_ns / 1e9)
