"""The option `every` of an exporter: only steps that are multiples of it are exported, and nothing is averaged."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from otel_ml_exporters.records import Record, StepRecord

__all__ = ["every_nth"]


def every_nth(records: Iterable[Record], every: int) -> Iterator[Record]:
    """Yield the rows of every `every`-th step, and all that is not a row; a plug-in's 0 or less is every step."""
    return (one for one in records if every <= 1 or not isinstance(one, StepRecord) or one.step % every == 0)
