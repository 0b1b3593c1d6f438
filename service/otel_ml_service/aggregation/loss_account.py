"""What a run lost, by reason, and what is said of it: the account balances (ADR 0031).

recorded = delivered + superseded + on its way + lost, for each writer and so for the run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from otel_ml_service.aggregation.run_state import RunState
from otel_ml_service.aggregation.writer_state import WriterState
from otel_ml_service.findings.wording import plural

__all__ = ["NEVER_ARRIVED", "lost_of", "recorded_in", "say_missing", "say_missing_at_end", "unreceived_of"]

NEVER_ARRIVED = "never_arrived"
"""The reason where a writer sent values that did not arrive, and does not know of it."""

EVENTS_NEVER_ARRIVED = "events_never_arrived"
EVENTS_GIVEN_UP = ("events_spool_full", "events_spool_unreadable", "events_and_spans")
"""What the reasons begin with under which a writer counts events that it knows to be lost on the way."""

_NAMED = 5
"""Ranks that a sentence names."""

_EVENTS = "Texts, tables, images, files or parameters"
_DO = (
    "What is missing counts as lost (events_never_arrived) unless it still comes. Look at what is between the job and "
    "the service: a Collector without a pipeline for logs acknowledges and drops them"
)


class _Losses(NamedTuple):
    """Of what a writer sent: what it knows to be lost, what it cannot know, in values; and log records."""

    given_up: int
    never_arrived: int
    events: int


def lost_of(run: RunState, writers: Iterable[WriterState], *, at_end: bool) -> dict[str, int]:
    """Return reason → values that are lost.

    Args:
        run: what is remembered of it.
        writers: of whom something may be.
        at_end: nothing is under way anymore.
    """
    lost: dict[str, int] = {"too_late": run.too_late}
    lost |= run.left_out
    for writer in writers:
        # Of all others nothing is known to be lost while the run goes on.
        if writer.shutdown_message is not None or writer.ledger.is_short or at_end:
            for reason, count in _of_writer(writer, at_end=at_end).items():
                lost[reason] = lost.get(reason, 0) + count
    return {reason: count for reason, count in lost.items() if count}


def recorded_in(run: RunState) -> int:
    """Return values that were recorded in a run, as far as is known."""
    return sum(map(recorded_by, run.writers)) + run.left_out_unrecorded


def recorded_by(writer: WriterState) -> int:
    """Return values that the user of a writer recorded, as far as is known."""
    if writer.shutdown_message is not None:
        return writer.shutdown_message.recorded
    return writer.ledger.recorded if writer.native else writer.points


def unreceived_of(writer: WriterState) -> int:
    """Return values that a writer recorded, that have not arrived, and that are waited for."""
    ledger = writer.ledger
    if not ledger.said_ahead:  # what it recorded since is not announced
        return 0
    losses = _losses(writer, at_end=False)
    return max(0, ledger.missing(at_end=True).values - losses.given_up - losses.never_arrived)


def _of_writer(writer: WriterState, *, at_end: bool) -> Mapping[str, int]:
    losses = _losses(writer, at_end=at_end)
    found = {NEVER_ARRIVED: losses.never_arrived, EVENTS_NEVER_ARRIVED: losses.events}
    if writer.shutdown_message is None:
        return found
    dropped, given_up = writer.shutdown_message.dropped or {}, writer.shutdown_message.given_up or {}
    # What was dropped before it was sent is in values; what was given up afterwards is in points, and is divided.
    before_sending = {reason: count - given_up.get(reason, 0) for reason, count in dropped.items()}
    # Added up, Counters leave out what is not positive.
    return Counter(found) + Counter(before_sending) + Counter(_shares(losses.given_up, given_up))


def _losses(writer: WriterState, *, at_end: bool) -> _Losses:
    """Return what of a writer is lost: what it gave up itself, and the rest once it is not waited for."""
    at_most, settled = writer.ledger.missing(at_end=True), writer.ledger.missing(at_end=at_end)
    events = max(0, settled.events - _given_up_events(writer))
    if not at_most.points:
        return _Losses(0, 0, events)
    told = sum(_explanations(writer).values())
    # A writer tells what it gave up in points: values in the same proportion.
    given_up = at_most.values * min(told, at_most.points) // at_most.points
    return _Losses(given_up, max(0, settled.values - given_up), events)


def _explanations(writer: WriterState) -> Mapping[str, int]:
    """Return points that a writer knows to be lost; one that does not tell these from others may mean all it says."""
    shutdown_message = writer.shutdown_message
    if shutdown_message is None:
        return {}
    return (shutdown_message.dropped if shutdown_message.given_up is None else shutdown_message.given_up) or {}


def _given_up_events(writer: WriterState) -> int:
    dropped = (writer.shutdown_message.dropped if writer.shutdown_message is not None else None) or {}
    return sum(count for reason, count in dropped.items() if reason.startswith(EVENTS_GIVEN_UP))


def _shares(values: int, by_reason: Mapping[str, int]) -> dict[str, int]:
    """Divide values in proportion to points; the sum is exact."""
    shares: dict[str, int] = {}
    points = sum(by_reason.values())
    for reason, count in by_reason.items():
        # Each its part of what the ones before it left: what was rounded away goes to the next.
        shares[reason] = values * count // points if points else 0
        values, points = values - shares[reason], points - count
    return shares


def say_missing(run: RunState, writer: WriterState) -> None:
    """Say once, while the run goes on, that something of a writer does not arrive."""
    losses = _losses(writer, at_end=False)
    # What was rejected is counted in items of any kind: these may be among them, and were said.
    if losses.events and not run.rejected:
        run.output.say_first(
            "events-never-arrived",
            f"{_EVENTS} do not arrive: more of them was sent than was received. {_DO}{_unless_full(writer)}.",
        )
    if run.is_missing_said or not losses.never_arrived or _is_explained(run, [writer], at_end=False):
        return
    run.note_missing_said()
    run.output.say(
        "never-arrived",
        f"Values of {_name(writer)} do not arrive{_steps([writer])}: it has sent more than was received. They count as "
        "lost (never_arrived) unless they still come. Look at what is between it and the service: something "
        f"acknowledges and drops them, or holds them back{_unless_full(writer)}.",
    )


def say_missing_at_end(run: RunState) -> None:
    """Say how much of the run never arrived, once it is over."""
    _say_missing_events(run)
    _say_unknown(run)
    missing = {writer: _losses(writer, at_end=True).never_arrived for writer in run.writers}
    concerned = [writer for writer, values in missing.items() if values]
    if not concerned or _is_explained(run, concerned, at_end=True):
        return
    run.output.say(
        "never-arrived",
        f"{sum(missing.values()):,} of {sum(map(recorded_by, concerned)):,} values of {_names(concerned)} never arrived"
        f"{_steps(concerned)}: something between them and the service acknowledged them and did not pass them "
        f"on{_or_full(concerned)}.",
    )


def _say_missing_events(run: RunState) -> None:
    missing = {writer: _losses(writer, at_end=True).events for writer in run.writers}
    concerned = [writer for writer, events in missing.items() if events]
    if concerned and sum(missing.values()) > run.rejected:
        run.output.say(
            "events-never-arrived",
            f"{sum(missing.values()):,} {_EVENTS.lower()} of {_names(concerned)} never arrived: "
            f"something between them and the service acknowledged them and did not pass them on{_or_full(concerned)}.",
        )


def _say_unknown(run: RunState) -> None:
    """Say of processes that were killed what cannot be counted: they did not live to say what was in it."""
    untold = {writer: _untold(writer) for writer in run.writers if writer.native and writer.shutdown_message is None}
    concerned = [writer for writer, messages in untold.items() if messages]
    if concerned:
        run.output.say(
            "never-arrived",
            f"{plural(sum(untold.values()), 'message')} of {_names(concerned)} never arrived, though later ones did. "
            "Nobody knows what was in there: the process ended before it said how much it had sent. "
            "Values may be missing.",
        )


def _untold(writer: WriterState) -> int:
    """Return running numbers that are missing among those after the newest totals."""
    ledger, missing = writer.ledger, 0
    if ledger.begins_anew:
        return 0
    # Totals at 4, received 1 to 4 and 9 to 12: 5 to 8 are missing.
    end = max(ledger.said[0], *ledger.said_ahead, 0)
    for first, last in writer.received:
        missing += max(0, first - end - 1)
        end = max(end, last)
    return missing


def _unless_full(writer: WriterState) -> str:
    """Return what else may be the reason: how much its own spool dropped, a process tells at its end."""
    return (
        "" if writer.shutdown_message is not None else "; unless a spool was full, which its process tells at its end"
    )


def _or_full(writers: Iterable[WriterState]) -> str:
    """Return what else may be the reason where one of them sent no shutdown message, which tells what was dropped."""
    if all(writer.shutdown_message is not None for writer in writers):
        return ""
    return ", or a full spool dropped them, of which a process that ends without its shutdown message does not tell"


def _is_explained(run: RunState, writers: list[WriterState], *, at_end: bool) -> bool:
    """Whether the service itself rejected as much as is missing: that was said, and nobody in between is to blame."""
    return sum(writer.ledger.missing(at_end=at_end).points for writer in writers) <= run.rejected


def _names(writers: list[WriterState]) -> str:
    more = f" and {len(writers) - _NAMED:,} others" if len(writers) > _NAMED else ""
    return ", ".join(map(_name, writers[:_NAMED])) + more


def _name(writer: WriterState) -> str:
    return f"rank {writer.writer.rank} of {writer.writer.role or 'the run'}"


def _steps(writers: list[WriterState]) -> str:
    found = [writer.ledger.steps for writer in writers if writer.ledger.steps is not None]
    if not found:
        return ""
    axis = found[0][0]
    spans = [(first, last) for name, first, last in found if name == axis]
    first, last = min(first for first, _ in spans), max(last for _, last in spans)
    return f" (somewhere in steps {first:,} to {last:,} of axis {axis!r})"
