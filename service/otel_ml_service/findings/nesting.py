"""Which timer is inside of which, and which one runs beside the others on a thread of its own: as spans show it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from otel_ml_exporters.records import Span
from otel_ml_service.findings.phases import STEP, accuses

__all__ = ["BESIDE", "ancestors", "parents_of"]

BESIDE = ""
"""In the place of a parent: the timer is inside of none, and runs while others do."""

_OVERLAP_NS = 1_000
"""Spans that overlap by less follow each other."""

_MOSTLY = 0.5
"""Part of a timer's spans that have to run beside others."""


def parents_of(spans: Iterable[Span]) -> dict[str, str]:
    """Return timer → the one that it is inside of, or `BESIDE`, from the spans of one rank.

    A span knows which one it was begun in. Of two that overlap and were not begun in each other, one is beside: what is
    not part of a step, else what waits, else the shorter one.

    Examples:
        >>> def span(name: str, start: int, end: int, inside: str | None = None) -> Span:
        ...     return Span("aa", name, inside, name, start * 10**6, end * 10**6, "trainer", 0, "step", 1)
        >>> parents_of([span("forward", 0, 5), span("attention", 1, 4, "forward"), span("backward", 5, 9)])
        {'attention': 'forward'}

        A thread reduces gradients while `backward` runs:

        >>> parents_of([span("backward", 5, 9), span("all_reduce", 7, 8)])
        {'all_reduce': ''}
    """
    ordered = sorted(spans, key=lambda one: (one.start_ns, -one.end_ns))
    known = {span.span_id: span for span in ordered}
    parents: dict[str, str] = {}
    beside: set[str] = set()
    running: list[Span] = []
    for span in ordered:
        running = [one for one in running if one.end_ns - span.start_ns > _OVERLAP_NS]
        around = _around(span, running, known)
        if around is not None and around.name != span.name:
            parents[span.name] = around.name
        beside.update(one.span_id for one in _beside(span, running, known))
        running.append(span)
    counts = Counter(span.name for span in ordered)
    often = Counter(known[span_id].name for span_id in beside)
    return {**parents, **{name: BESIDE for name, count in often.items() if count > _MOSTLY * counts[name]}}


def ancestors(span: Span, known: Mapping[str, Span]) -> Iterator[Span]:
    """Yield the spans that a span was begun in, the innermost first, as far as they are known."""
    seen = {span.span_id}
    while (parent := known.get(span.parent_id or "")) is not None and parent.span_id not in seen:
        seen.add(parent.span_id)
        yield parent
        span = parent


def _around(span: Span, running: list[Span], known: Mapping[str, Span]) -> Span | None:
    """Return the span that another one is inside of: it was begun in it, and ends before it does."""
    if span.parent_id is not None and span.parent_id not in known:  # of a parent that was not kept
        return next((one for one in reversed(running) if one.end_ns >= span.end_ns), None)
    return next((one for one in ancestors(span, known) if one.end_ns >= span.end_ns), None)


def _beside(span: Span, running: Iterable[Span], known: Mapping[str, Span]) -> Iterator[Span]:
    """Yield a span or those that run when it begins, whichever of two is beside the other one."""
    family = {one.span_id for one in ancestors(span, known)}
    for one in running:
        if one.span_id in family and one.end_ns >= span.end_ns:
            continue
        if span.parent_id is not None and span.parent_id not in known and one.end_ns >= span.end_ns:
            continue
        yield min((span, one), key=lambda other: _rank(other, known))


def _rank(span: Span, known: Mapping[str, Span]) -> tuple[bool, bool, int]:
    """Return how much a span belongs to what a step is made of; the least is beside."""
    is_of_step = span.name == STEP or any(one.name == STEP for one in ancestors(span, known))
    return is_of_step, accuses(span.name), span.end_ns - span.start_ns
