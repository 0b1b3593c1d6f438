"""The span that shows a finding, looked up in the stored spans where the finding itself only names the nearest one."""

from __future__ import annotations

import json
from dataclasses import replace

from otel_ml_exporters.records import Span
from otel_ml_service.why.facts import Place, RunFacts, Slow

__all__ = ["shown_exactly"]


def shown_exactly(facts: RunFacts, place: Place, slow: Slow) -> Slow:
    """Return the finding with the longest span of its rank and timer in its steps; as it is where none is stored.

    The service names the span that it has when it tells; of a finding that is told late, or of a rank whose spans come
    late, that is one of other steps. Nothing is read where the finding has one of its own.
    """
    is_exact = slow.shows is not None and slow.since <= slow.shows <= slow.last
    if slow.kind != "slow" or is_exact or not isinstance(slow.rank, int):
        return slow
    first_word = json.dumps(slow.phase.partition("/")[0])[1:-1].encode()
    wanted = b'"rank":%d,' % slow.rank, b'"name":"' + first_word
    spans = facts.spans_of_steps(place, slow.since, slow.last, *wanted)
    best = max((span for span in spans if _shows(span, place, slow)), key=_length, default=None)
    return slow if best is None else replace(slow, shows=best.step, span=best.span_id)


def _shows(span: Span, place: Place, slow: Slow) -> bool:
    is_there = (span.role, span.axis, span.rank) == (place.role, place.axis, slow.rank)
    is_of_phase = span.name == slow.phase or slow.phase.startswith(f"{span.name}/")
    return is_there and is_of_phase and span.step is not None and slow.since <= span.step <= slow.last


def _length(span: Span) -> int:
    return span.end_ns - span.start_ns
