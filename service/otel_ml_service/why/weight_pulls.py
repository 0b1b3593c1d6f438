"""How a producer got the weights that it made samples with: spans that are linked to whom it took them from."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from otel_ml.wire.attributes import ROLE, VERSION
from otel_ml.wire.trace_context import half_of_role
from otel_ml_exporters.records import Span
from otel_ml_service.why.facts import Place, RunFacts
from otel_ml_service.why.producers import Producer

__all__ = ["Pull", "pull_of"]

_BEFORE = 32
"""Steps before in which its other pulls are looked for."""

_LONG = 3.0
"""Times the usual one from which a pull is long."""


@dataclass(frozen=True, slots=True)
class Pull:
    """A span in which a producer took in weights.

    Attributes:
        version: that it took.
        seconds: that it lasted; `usual_s` of its others, None where there are none.
    """

    span: Span
    version: int
    seconds: float
    usual_s: float | None

    @property
    def is_long(self) -> bool:
        """Whether it took several times as long as others do."""
        return self.usual_s is None or self.seconds >= _LONG * self.usual_s


def pull_of(
    facts: RunFacts, place: Place, producer: Producer, version: float | None, since: int, last: int
) -> Pull | None:
    """Return the pull that brought what a producer served, else its longest one meanwhile; None without spans.

    Args:
        facts: of the run.
        place: whose steps these are.
        producer: who pulled.
        version: that it served; None where it was not one.
        since: the first step that used it.
        last: the last one.
    """
    # What a line of such a span has in it, as the exporter `jsonl` writes it: others are not parsed.
    wanted = b'"links":[', b'"rank":%d,' % producer.rank
    spans = facts.spans_of_steps(place, since - _BEFORE, last, *wanted)
    pulls = [(span, taken) for span in spans if (taken := _taken(span, producer)) is not None]
    # The end of the step before: what ended earlier brought nothing to these steps that those before had not.
    begin_ns = max((at for step, at in facts.times.get(place, {}).items() if step < since), default=0.0) * 1e9
    # The last one that took it; a list, as there may be none.
    brought = [pull for pull in pulls if pull[1] == version][-1:]
    meanwhile = [pull for pull in pulls if pull[0].end_ns >= begin_ns]
    if not brought and not meanwhile:
        return None
    span, taken = max(brought or meanwhile, key=lambda pull: _seconds(pull[0]))
    others = [_seconds(one) for one, _ in pulls if one is not span]
    return Pull(span, taken, _seconds(span), median(others) if others else None)


def _taken(span: Span, producer: Producer) -> int | None:
    """Return the version of the weights that a span of the producer took from another role; None of others."""
    if half_of_role(span.role) != half_of_role(producer.role) or span.rank != producer.rank:
        return None
    # A link has of a role what its context has, the first ten letters, as a producer does.
    of_others = (link.attributes for link in span.links if link.attributes.get(ROLE) != producer.role)
    return next((version for said in of_others if isinstance(version := said.get(VERSION), int)), None)


def _seconds(span: Span) -> float:
    return (span.end_ns - span.start_ns) / 1e9
