"""What the phases of steps have of the longest path through their spans, where no account of them is published."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from otel_ml_exporters.records import Span
from otel_ml_service.findings.peers import is_pipeline
from otel_ml_service.findings.step_account import account_of_step
from otel_ml_service.why.facts import Place, RunFacts
from otel_ml_service.why.how_often import rows
from otel_ml_service.why.step_time import StepTime

__all__ = ["by_paths", "newest_spans"]

_STEPS = 16
"""Whose paths are looked at: the newest ones of those in question, and of the usual ones."""


def by_paths(facts: RunFacts, place: Place, time: StepTime, *groups: Sequence[int]) -> StepTime:
    """Return the account of some steps of each group by their paths; what is known already where phases are a line.

    So it is where no spans of all ranks are kept, too.
    """
    # An account whose phases follow each other is exact; where they take turns, it is that of one rank.
    if not time.phases or (time.source == "account" and not is_pipeline(tuple(time.phases))):
        return time
    found: dict[int, Mapping[int, Sequence[Span]]] = {}
    for steps in groups:
        found |= newest_spans(facts, place, steps)
    most = max(map(len, found.values()), default=0)
    phases: dict[str, dict[int, float]] = defaultdict(dict)
    ranks: dict[str, dict[int, float]] = defaultdict(dict)
    seconds: dict[int, float] = {}
    for step, of_rank in sorted(found.items()):
        # Where the spans of a rank are missing, a path that leads to it would stay with who waits.
        if len(of_rank) == most and of_rank.keys() >= {
            values[step] for values in time.ranks.values() if step in values
        }:
            account = account_of_step(of_rank).phases
            seconds[step] = sum(entry.seconds for entry in account)
            for phase, of_it, rank in account:
                phases[phase][step], ranks[phase][step] = of_it, rank
    if not seconds:
        return time
    return replace(time, source="path", seconds=seconds, phases=phases, ranks=ranks, is_alone=most == 1)


def newest_spans(facts: RunFacts, place: Place, steps: Sequence[int]) -> Mapping[int, Mapping[int, Sequence[Span]]]:
    """Return step → rank → its spans, of the newest of these steps."""
    return _spans_of(facts, place, sorted(steps)[-_STEPS:])


def _spans_of(facts: RunFacts, place: Place, steps: Sequence[int]) -> Mapping[int, Mapping[int, Sequence[Span]]]:
    """Return step → rank → its spans, in the order in which they begin."""
    found: dict[int, dict[int, list[Span]]] = defaultdict(lambda: defaultdict(list))
    # Row by row, so that the spans of the time between two rows are not read.
    for row in map(set, rows(steps)):
        for span in facts.spans_of_steps(place, min(row), max(row)):
            if span.step in row and (span.role, span.axis) == place:
                found[span.step][span.rank].append(span)
    for spans in (spans for of_rank in found.values() for spans in of_rank.values()):
        spans.sort(key=lambda one: (one.start_ns, -one.end_ns))
    return found
