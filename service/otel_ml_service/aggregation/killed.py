"""Who was killed, and in which timer, as far as that is known: a text for each rank (docs/protocol.md §5.10)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from otel_ml.quantities import seconds
from otel_ml.wire import attributes as keys
from otel_ml_exporters.records import Text
from otel_ml_exporters.span_lines import SpanLines
from otel_ml_service.aggregation.failures import KILLED, NOT_KILLED
from otel_ml_service.aggregation.naming import item_name
from otel_ml_service.aggregation.newest_spans import NewestSpans
from otel_ml_service.aggregation.observation import Writer
from otel_ml_service.aggregation.output import Output
from otel_ml_service.aggregation.step_streams import StepStreams
from otel_ml_service.aggregation.writer_state import WriterState
from otel_ml_service.findings.unfinished import Unfinished, unfinished

__all__ = ["publish_killed", "retract_killed", "say_child_died"]

_LOOKED_AT = 64
"""Ranks whose spans are read, those that were heard least lately; each costs a millisecond."""

_NAMED = 8
"""Ranks of which there is a text: of a whole job that is killed, those that were in something else than most."""


class _Killed(NamedTuple):
    writer: WriterState
    was_in: Unfinished | None


def publish_killed(writers: Iterable[WriterState], output: Output, spans: NewestSpans, streams: StepStreams) -> None:
    """Emit a text for each of the `writers` that ended without a word."""
    in_order = sorted(writers, key=lambda one: (one.alive_at, one.number))[:_LOOKED_AT]
    found = [_Killed(one, _was_in(one, spans)) for one in in_order]
    # A job that is killed as a whole: what most were in tells least.
    alike = Counter(_phase(one) for one in found)
    for one in sorted(found, key=lambda one: alike[_phase(one)])[:_NAMED]:
        _emit(one, output, streams, " ".join(_sentences(one)))


def retract_killed(writer: WriterState, output: Output, streams: StepStreams) -> None:
    """Emit that a writer was not killed, of which that was said: its shutdown message came later than the run's end."""
    _emit(_Killed(writer, None), output, streams, NOT_KILLED)


def say_child_died(child: Writer, output: Output) -> None:
    """Say that a child is missed. The run is not killed: who calls `os._exit()` sends no last message either."""
    role = f" of {child.role}" if child.role not in keys.UNNAMED_ROLES else ""
    output.say(
        "child-died",
        f"A child of rank {child.rank}{role} ended without its last message: it was killed, or left by "
        "os._exit(). What it recorded in its last moments is in no count.",
    )


def _was_in(state: WriterState, spans: NewestSpans) -> Unfinished | None:
    lines = SpanLines(tuple(spans.of(state.writer.role, state.writer.rank, state.attempt or 0)))
    return unfinished(lines, state.alive_ns)


def _phase(one: _Killed) -> str:
    return "" if one.was_in is None else one.was_in.phase


def _emit(one: _Killed, output: Output, streams: StepStreams, text: str) -> None:
    state, writer = one.writer, one.writer.writer
    output.emit(
        Text,
        time=state.alive_at,
        name=item_name(writer.role, None, KILLED, writer.rank, with_role=True),
        axis=keys.DEFAULT_AXIS if one.was_in is None else one.was_in.axis,
        step=_last_step(state, streams) if one.was_in is None else one.was_in.step,
        text=text,
    )


def _last_step(state: WriterState, streams: StepStreams) -> int | None:
    """Return the step that it was in, of the axis of training; None where it had none.

    Of who is waited for no longer that is the step after the last one that it said to be done with.
    """
    number = state.attempts.get(keys.DEFAULT_AXIS, -1)
    progress = state.progress.get(number)
    if progress is None or progress.current is not None:
        return None if progress is None else progress.current
    # It has left: `Progress.leave` has forgotten its current step, but not the last one that it was done with.
    if progress.done_through < 0:
        return progress.first
    later = (
        max(begin, progress.done_through + 1) for begin, end in streams.all[number].known if end > progress.done_through
    )
    return next(later, progress.done_through)


def _sentences(one: _Killed) -> Iterator[str]:
    was_in = one.was_in
    if was_in is None or not was_in.phase:
        yield "Killed."
    else:
        for_s = (one.writer.alive_ns - (was_in.began_ns or 0)) / 1e9
        yield f"Killed in {was_in.phase}, {seconds(for_s)} after it began."
    yield "Nothing was heard of it since."
