"""Spans as the JSON they are stored and written as: most are read by nobody before that."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any, overload

from otel_ml_exporters.records import Span

__all__ = ["SpanLines"]

_NAMES = tuple(field.name for field in fields(Span))


class SpanLines(Sequence[Span]):
    """A sequence of spans that makes a `Span` when it is asked for one.

    Most spans pass the service as the one text in which they were read: nobody looks at a line.

    Attributes:
        text: one JSON object a span, its keys those of `Span` in their order, one a line; in JSON a line ends nowhere
            else.

    Examples:
        >>> span = Span("a1", "b2", None, "forward", 1, 2, "trainer", 0, "step", 7)
        >>> spans = SpanLines.of([span])
        >>> spans[0] == span, len(spans)
        (True, 1)
    """

    __slots__ = ("_count", "text")

    def __init__(self, lines: Sequence[str] = ()) -> None:
        self.text = "\n".join(lines)
        self._count = len(lines)

    @classmethod
    def joined(cls, every: Iterable[SpanLines]) -> SpanLines:
        """Return all of them, one after the other."""
        some = [spans for spans in every if spans]
        return cls.of_text("\n".join([spans.text for spans in some]), sum(map(len, some)))

    @classmethod
    def of_text(cls, text: str, count: int) -> SpanLines:
        """Return the spans of `text`, which has so many lines."""
        found = cls()
        found.text, found._count = text, count
        return found

    @classmethod
    def of(cls, spans: Iterable[Span]) -> SpanLines:
        """Return `spans` as lines."""
        if isinstance(spans, SpanLines):
            return spans
        return cls([json.dumps(_content(span), separators=(",", ":"), default=dict) for span in spans])

    @property
    def lines(self) -> Sequence[str]:
        """Each span as JSON."""
        return self.text.split("\n") if self._count else ()

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> Span: ...
    @overload
    def __getitem__(self, index: slice) -> SpanLines: ...
    def __getitem__(self, index: int | slice) -> Span | SpanLines:
        if isinstance(index, slice):
            return SpanLines(self.lines[index])
        return Span(**json.loads(self.lines[index]))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(self) == len(other) and all(map(_equal, self, other))

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"SpanLines({list(self)!r})"


def _equal(left: object, right: object) -> bool:
    return left == right


def _content(span: Span) -> Mapping[str, Any]:
    return {name: getattr(span, name) for name in _NAMES}
