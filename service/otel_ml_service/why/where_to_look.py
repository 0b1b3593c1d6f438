"""The steps to look at where somebody was found, or the longest one, and the span that shows it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from otel_ml.quantities import seconds
from otel_ml.wire.attributes import DEFAULT_AXIS
from otel_ml_exporters.records import Span
from otel_ml_service.why.answer import Look
from otel_ml_service.why.facts import Place, RunFacts, Slow
from otel_ml_service.why.step_time import StepTime

__all__ = ["shown_exactly", "where_to_look"]


def where_to_look(
    facts: RunFacts, place: Place, causes: Sequence[Slow], steps: Sequence[int], kept: Sequence[int], time: StepTime
) -> list[Look]:
    """Return the spans that show the causes, and the longest of the steps; of one alone how to have it drawn.

    Args:
        facts: of the run.
        place: whose steps.
        causes: findings that explain them.
        steps: all that are asked about.
        kept: those without a pause: a cause is not looked for in one.
        time: of the steps.
    """
    looks = [
        Look(place.axis, slow.shows, f"span {slow.span} of {slow.who}" + (f", {slow.phase}" if slow.phase else ""))
        for slow in causes
        if slow.shows is not None and slow.span is not None
    ]
    longest = max(kept if causes else steps, key=time.seconds.__getitem__)
    if len(steps) > 1:
        return [*looks, Look(place.axis, longest, f"the longest one, {seconds(time.seconds[longest])}")]
    axis = "" if place.axis == DEFAULT_AXIS else f" --axis {place.axis}"
    drawn = f"`otel-ml trace {facts.id} --steps {longest}{axis}` draws what each rank did in it"
    return [*looks, Look(place.axis, longest, drawn)]


def shown_exactly(facts: RunFacts, place: Place, slow: Slow) -> Slow:
    """Return the finding with the longest span of its rank and timer in its steps; as it is where none is stored.

    The service names the span that it has when it tells; of a finding that is told late, or of a rank whose spans come
    late, that is one of other steps. Nothing is read where the finding has one of its own.
    """
    is_exact = slow.shows is not None and slow.since <= slow.shows <= slow.last
    if slow.kind != "slow" or is_exact or not isinstance(slow.rank, int):
        return slow
    # A filter on bytes, before a line is read: a timer with attributes is called `forward/…` here, and `forward` there.
    # `[1:-1]`: without the quotes, as more may follow.
    first_word = json.dumps(slow.phase.partition("/")[0])[1:-1].encode()
    wanted = b'"rank":%d,' % slow.rank, b'"name":"' + first_word
    spans = facts.spans_of_steps(place, slow.since, slow.last, *wanted)
    best = max((span for span in spans if _is_shown_by(span, place, slow)), key=_length, default=None)
    return slow if best is None else replace(slow, shows=best.step, span=best.span_id)


def _is_shown_by(span: Span, place: Place, slow: Slow) -> bool:
    is_there = (span.role, span.axis, span.rank) == (place.role, place.axis, slow.rank)
    is_of_phase = span.name == slow.phase or slow.phase.startswith(f"{span.name}/")
    return is_there and is_of_phase and span.step is not None and slow.since <= span.step <= slow.last


def _length(span: Span) -> int:
    return span.end_ns - span.start_ns
