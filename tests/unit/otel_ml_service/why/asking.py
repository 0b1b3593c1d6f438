"""`why` is asked about records, and what it says is read."""

from __future__ import annotations

from collections.abc import Sequence

from otel_ml_exporters.records import Record
from otel_ml_service.why.answer import Answer
from otel_ml_service.why.ask import Question, why
from otel_ml_service.why.facts import facts_of

SLOW = range(80, 120)


def asked(
    records: Sequence[Record], metric: str | None = None, steps: tuple[int, int] | None = None, axis: str | None = None
) -> Answer:
    return why(facts_of("run", records), Question(metric, *(steps or (None, None)), axis=axis))


def texts(answer: Answer) -> str:
    return "\n".join([*answer.sentences, *(one.text for one in answer.evidence)])
