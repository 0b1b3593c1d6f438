"""How a run stands, for people and for self-telemetry."""

from __future__ import annotations

from otel_ml_service.aggregation.closing import ClosingTrigger
from otel_ml_service.aggregation.loss_account import lost_of, unreceived_of
from otel_ml_service.aggregation.outcome import Counts, Holder, RunFacts, Status
from otel_ml_service.aggregation.run_state import RunState
from otel_ml_service.aggregation.spans import SpanIntake
from otel_ml_service.aggregation.writer_totals import WriterTotals

__all__ = ["facts_of", "status_of"]


def facts_of(run: RunState, totals: WriterTotals) -> RunFacts:
    """Return what the writers say about the run, and when it began."""
    totals.refresh()
    return totals.facts._replace(started_at=_started_at(run))


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


def status_of(
    run: RunState, totals: WriterTotals, state: str, spans: SpanIntake, closing_trigger: ClosingTrigger
) -> Status:
    """Return how the run stands."""
    totals.refresh()
    is_over = state != "running"
    live, left = run.live(), totals.states(totals.left)
    # Those that died without a shutdown message have left, too, and say nothing of what recording cost.
    gone = [(one, one.shutdown_message) for one in left if one.shutdown_message and one.native and not one.child]
    # Whose shutdown message was heard last: whoever asked before that was told that others are live, and did not wait.
    last = max(gone, key=lambda each: (each[0].heard_at, each[1].time_ns), default=None)
    return Status(
        state=state,
        writers=totals.own,
        writers_live=len(live),
        ranks=totals.ranks,
        recorded=totals.recorded + run.left_out_unrecorded,
        superseded=run.superseded,
        unreceived=0 if is_over else sum(map(unreceived_of, totals.states(totals.unbalanced))),
        lost=lost_of(run, run.writers if is_over else totals.states(totals.unbalanced), at_end=is_over),
        open_steps=sum(len(attempt.open) for attempt in run.step_streams),
        open_bytes=run.open_bytes,
        retained_bytes=run.retained_bytes,
        holding=_holding(run, closing_trigger),
        overhead_s=sum(message.overhead_s for _, message in gone),
        duration_s=sum(message.duration_s for _, message in gone),
        last_seq=run.output.seq,
        left=frozenset(one.writer.instance for one in left),
        last_writer=None if live or last is None else last[0].writer.instance,
        counts=counts_of(run, spans),
    )


def _holding(run: RunState, closing_trigger: ClosingTrigger) -> tuple[Holder, ...]:
    held: list[Holder] = []
    for attempt in run.step_streams:
        window = attempt.oldest
        # A window of the axis `time` waits for nobody.
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
