"""Spans of several clocks on one: moved by as little as it takes for nothing to end before what led to it begins."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from otel_ml_exporters.records import Span

__all__ = ["causal_shifts", "in_causal_order", "shifts_within"]

Process = tuple[str, int]
"""Role and rank: all spans of a process have one clock."""

_TRAINER = "trainer"


def in_causal_order(spans: Sequence[Span]) -> Sequence[Span]:
    """Return spans as one clock would have them; as they are where links tell nothing, or no shift of clocks fits."""
    shifts = causal_shifts(spans) or {}
    if not any(shifts.values()):
        return spans
    return [_moved(span, shifts.get((span.role, span.rank), 0)) for span in spans]


def causal_shifts(spans: Sequence[Span]) -> Mapping[Process, int] | None:
    """Return by how many ns each process' clock has to be moved; None where no shift fits: a clock jumped meanwhile.

    What consumed something ends after that was produced. Each link between processes bounds the difference of two
    clocks, links both ways from both sides, and shortest paths find clocks that fit all bounds. Clocks that are right
    by all links are not moved, and of those that are linked the trainer's lowest rank is not, else the first one.

    Examples:
        >>> made = Span("aa", "b1", None, "produced", 3600, 3600, "generator", 0, "rollout", 7)
        >>> from otel_ml_exporters.records import SpanLink
        >>> used = Span("cc", "d1", None, "train", 0, 40, "trainer", 0, "step", 9, links=[SpanLink("aa", "b1")])
        >>> causal_shifts([made, used])
        {('generator', 0): -3560, ('trainer', 0): 0}
    """
    return shifts_within(_bounds(spans))


def shifts_within(bounds: Mapping[tuple[Process, Process], int]) -> Mapping[Process, int] | None:
    """Return the same from what is known of the clocks.

    Args:
        bounds: (effect, cause) → by how many ns the cause's clock may be ahead, at most.
    """
    shifts = dict.fromkeys(sorted({process for pair in bounds for process in pair}), 0)
    after: dict[Process, list[tuple[Process, int]]] = {}
    for (effect, cause), most in bounds.items():
        after.setdefault(effect, []).append((cause, most))
    # Bellman and Ford's shortest paths, with a queue. Bounds that contradict each other are a circle, round which
    # somebody is moved more often than there are processes.
    waiting, rounds = deque(shifts), dict.fromkeys(shifts, 0)
    while waiting:
        effect = waiting.popleft()
        rounds[effect] += 1
        if rounds[effect] > len(shifts):
            return None
        for cause, most in after.get(effect, ()):
            # The cause may be ahead of the effect by `most` at most: else its clock goes back to that.
            if shifts[effect] + most < shifts[cause]:
                shifts[cause] = shifts[effect] + most
                if cause not in waiting:
                    waiting.append(cause)
    return _against_one(shifts, bounds)


def _against_one(shifts: Mapping[Process, int], bounds: Iterable[tuple[Process, Process]]) -> Mapping[Process, int]:
    """Return shifts so that one clock of each group of linked processes stays: what has no spans goes by it."""
    group = {process: {process} for process in shifts}
    # Sets that meet become one object, by whose identity a group is known below.
    for effect, cause in bounds:
        both = group[effect] | group[cause]
        group.update(dict.fromkeys(both, both))
    first = {id(of): min(of, key=lambda one: (one[0] != _TRAINER, one)) for of in group.values()}
    return {process: shift - shifts[first[id(group[process])]] for process, shift in shifts.items()}


def _bounds(spans: Sequence[Span]) -> Mapping[tuple[Process, Process], int]:
    """Return (effect, cause) → by how much the cause's clock may be ahead, at most."""
    # Contexts of one producer and version have 256 span ids, and a trace each.
    known = {(span.trace_id, span.span_id): span for span in spans}
    bounds: dict[tuple[Process, Process], int] = {}
    for effect in spans:
        for link in effect.links:
            cause = known.get((link.trace_id, link.span_id))
            if cause is None:
                continue  # one that never came, or that is older than these
            pair = (effect.role, effect.rank), (cause.role, cause.rank)
            if pair[0] != pair[1]:
                most = effect.end_ns - cause.start_ns
                bounds[pair] = min(most, bounds.get(pair, most))
    return bounds


def _moved(span: Span, shift: int) -> Span:
    return replace(span, start_ns=span.start_ns + shift, end_ns=span.end_ns + shift) if shift else span
