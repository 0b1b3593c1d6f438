"""What a rank was in when nothing more was heard of it: the timer that it finishes next in other steps.

Spans are sent when they end, so the one that a process died in is not there. The step before tells which comes next.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from otel_ml_exporters.records import Span
from otel_ml_service.findings.phases import STEP

__all__ = ["Unfinished", "unfinished"]


class Unfinished(NamedTuple):
    """What a rank had not finished.

    Attributes:
        axis, step: the newest step of which it has finished a timer.
        phase: the timer that it was in; empty where it had finished the step, or was in none.
        began_ns: when that began, by its own clock; None where that is not known.
    """

    axis: str
    step: int
    phase: str
    began_ns: int | None


def unfinished(spans: Iterable[Span], alive_ns: int) -> Unfinished | None:
    """Return what a rank was in; None where none of its spans is in a step.

    Args:
        spans: the newest ones of the rank.
        alive_ns: when it recorded something last, by its own clock.

    Examples:
        >>> usual = [Span("t", "a", None, "data", 0, 2, "trainer", 3, "step", 6),
        ...          Span("t", "b", None, "forward", 2, 9, "trainer", 3, "step", 6)]
        >>> unfinished([*usual, Span("t", "c", None, "data", 10, 12, "trainer", 3, "step", 7)], 99)
        Unfinished(axis='step', step=7, phase='forward', began_ns=12)
    """
    in_steps = [span for span in spans if span.step is not None and span.axis]
    if not in_steps:
        return None
    axis = max(in_steps, key=lambda span: span.end_ns).axis
    steps = sorted({span.step for span in in_steps if span.axis == axis and span.step is not None})
    done, before = (_of_step(in_steps, axis, step) for step in (steps[-1], steps[-2] if len(steps) > 1 else None))
    nowhere = Unfinished(str(axis), steps[-1], "", None)
    missing = _missing(before, done)
    if any(span.name == STEP for span in done) or not missing:
        return nowhere
    phase = _innermost(missing)
    ended_ns = max((span.end_ns for span in before if span.end_ns <= phase.start_ns), default=phase.start_ns)
    # It began as long after the timer before it ended as in the step before.
    began_ns = max(span.end_ns for span in done) + phase.start_ns - ended_ns
    return nowhere._replace(phase=phase.name, began_ns=began_ns) if began_ns <= alive_ns else nowhere


def _of_step(spans: Iterable[Span], axis: str | None, step: int | None) -> list[Span]:
    there = (span for span in spans if span.axis == axis and span.step == step and step is not None)
    return sorted(there, key=lambda span: (span.start_ns, -span.end_ns))


def _missing(usual: Iterable[Span], done: Iterable[Span]) -> list[Span]:
    """Return the spans of a usual step that another one has not, as often as it has them."""
    left = Counter(span.name for span in done)
    missing = []
    for span in usual:
        left[span.name] -= 1
        if left[span.name] < 0 and span.name != STEP:
            missing.append(span)
    return missing


def _innermost(missing: Sequence[Span]) -> Span:
    """Return the first span, or the one inside of it that comes next: what is around others ends after them."""
    phase = missing[0]
    for span in missing[1:]:
        if span.parent_id != phase.span_id:
            break
        phase = span
    return phase
