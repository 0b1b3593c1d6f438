"""Which timer is inside of which, and which one runs beside the others on a thread of its own: as spans show it.

A block that is timed inside of another one has it for its parent, but timers that are started by hand are nobody's
parents. So a span is inside of one that it is within in time, unless only one of the two belongs to a step: another
thread does not know which span its step has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from otel_ml_exporters.records import Span
from otel_ml_service.findings.phases import STEP, accuses, in_order

__all__ = ["BESIDE", "contains", "of_steps", "order_of", "parents_of"]

BESIDE = ""
"""In the place of a parent: the timer is inside of none, and runs while others do."""

_OVERLAP_NS = 1_000
"""Spans that overlap by less follow each other."""

_MOSTLY = 0.5
"""Part of a timer's spans that have to run beside others."""


def parents_of(spans: Iterable[Span]) -> dict[str, str]:
    """Return timer → the one that it is inside of, or `BESIDE`, from the spans of one rank.

    Of two that overlap where none is inside of the other, one is beside: what is not part of a step, else what waits,
    else the shorter one.

    Examples:
        >>> def span(name: str, start: int, end: int, inside: str | None = None) -> Span:
        ...     return Span("aa", name, inside, name, start * 10**6, end * 10**6, "trainer", 0, "step", 1)
        >>> parents_of([span("forward", 0, 5), span("attention", 1, 4), span("backward", 5, 9)])
        {'attention': 'forward'}

        A thread reduces gradients while `backward` runs:

        >>> parents_of([span("step", 0, 9), span("backward", 5, 9, "step"), span("all_reduce", 7, 8)])
        {'backward': 'step', 'all_reduce': ''}
    """
    ordered = sorted(spans, key=lambda one: (one.start_ns, -one.end_ns))
    steps = of_steps(ordered)
    names = {span.span_id: span.name for span in ordered}
    parents: dict[str, str] = {}
    beside: set[str] = set()
    running: list[Span] = []
    for span in ordered:
        running = [one for one in running if one.end_ns - span.start_ns > _OVERLAP_NS]
        around = [one for one in running if contains(one, span, steps)]
        # The innermost of those around it is the one that began last; a timer inside of itself is re-entered.
        if around and around[-1].name != span.name:
            parents[span.name] = around[-1].name
        beside.update(_beside(span, one, steps).span_id for one in running if one not in around)
        running.append(span)
    counts, often = Counter(names.values()), Counter(names[span_id] for span_id in beside)
    # Where most of its spans run beside others, it is beside them, whatever the rest of them are inside of.
    return {**parents, **{name: BESIDE for name, count in often.items() if count > _MOSTLY * counts[name]}}


def order_of(spans: Iterable[Span]) -> tuple[str, ...]:
    """Return timers in the order in which they begin within a step, from the spans of one rank.

    Points come in the order in which timers were first used at all, so a checkpoint would come last.

    Examples:
        >>> def span(name: str, start: int, step: int) -> Span:
        ...     return Span("aa", "", None, name, start, start + 1, "trainer", 0, "step", step)
        >>> order_of([span("forward", 0, 1), span("sync", 2, 1)] + [span("forward", 9, 2), span("save", 11, 2)])
        ('forward', 'sync', 'save')
        >>> order_of([span("forward", 9, 2), span("save", 11, 2), span("sync", 13, 2)])
        ('forward', 'save', 'sync')
    """
    of_steps: dict[int | None, dict[str, None]] = {}
    for span in sorted(spans, key=lambda one: one.start_ns):
        of_steps.setdefault(span.step, {}).setdefault(span.name)
    return in_order(tuple(names) for names in dict.fromkeys(map(tuple, of_steps.values())))


def contains(around: Span, span: Span, steps: frozenset[str]) -> bool:
    """Whether a span that begins while another one runs is inside of it.

    Args:
        around: runs when `span` begins.
        span: begins then, or at the same time.
        steps: ids of the spans that belong to a step.
    """
    return around.end_ns >= span.end_ns and (around.span_id in steps) == (span.span_id in steps)


def of_steps(spans: Iterable[Span]) -> frozenset[str]:
    """Return the ids of the spans that belong to a timed step: its own, and those that were begun in it."""
    known = {span.span_id: span for span in spans}
    return frozenset(
        span_id
        for span_id, span in known.items()
        if span.name == STEP or any(one.name == STEP for one in _ancestors(span, known))
    )


def _ancestors(span: Span, known: Mapping[str, Span]) -> Iterator[Span]:
    seen = {span.span_id}
    while (parent := known.get(span.parent_id or "")) is not None and parent.span_id not in seen:
        seen.add(parent.span_id)
        yield parent
        span = parent


def _beside(one: Span, other: Span, steps: frozenset[str]) -> Span:
    """Return which of two spans that overlap is not what a step is made of."""
    return min(one, other, key=lambda span: (span.span_id in steps, accuses(span.name), span.end_ns - span.start_ns))
