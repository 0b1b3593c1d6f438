"""Spans as the JSON they are stored and written as: most are read by nobody before that."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from sys import getsizeof
from typing import Any, overload

from otel_ml._internal.native import native
from otel_ml_exporters.json_text import json_value
from otel_ml_exporters.records import Span, SpanLink

__all__ = ["SpanLines", "links_as_json", "span_of"]

_NAMES = tuple(field.name for field in fields(Span))
_OF_A_LINK = tuple(field.name for field in fields(SpanLink))


class SpanLines(Sequence[Span]):
    """A sequence of spans that makes a `Span` when it is asked for one.

    Most spans pass the service as the one text in which they were read: nobody looks at a line. A line is a JSON
    object, its keys those of `Span` in their order, without `links` where there are none; in JSON a line ends nowhere
    else.

    Examples:
        >>> span = Span("a1", "b2", None, "forward", 1, 2, "trainer", 0, "step", 7)
        >>> spans = SpanLines.of([span])
        >>> spans[0] == span, len(spans)
        (True, 1)
    """

    __slots__ = ("_count", "_text")

    def __init__(self, lines: Sequence[str] = ()) -> None:
        # Without the braces that lines begin with: what a line is written with goes there.
        self._text = "\n".join([line[1:] for line in lines])
        self._count = len(lines)

    @classmethod
    def joined(cls, every: Iterable[SpanLines]) -> SpanLines:
        """Return all of them, one after the other."""
        some = [spans for spans in every if spans]
        return cls.of_text("\n".join([spans._text for spans in some]), sum(map(len, some)))  # noqa: SLF001 (its own)

    @classmethod
    def of_text(cls, text: str, count: int) -> SpanLines:
        """Return the spans of so many lines, of which each lacks the brace that it begins with.

        What a line is written with comes before its first key. To look for more than the one character that ends a line
        takes as long as to read the span.
        """
        found = cls()
        found._text, found._count = text, count
        return found

    @classmethod
    def of(cls, spans: Iterable[Span]) -> SpanLines:
        """Return `spans` as lines."""
        if isinstance(spans, SpanLines):
            return spans
        return cls([json.dumps(_content(span), separators=(",", ":"), default=dict) for span in spans])

    def newest(self, count: int) -> SpanLines:
        """Return the last so many of them.

        Examples:
            >>> SpanLines(['{"name":"a"}', '{"name":"b"}']).newest(1).rows()
            [{'name': 'b'}]
        """
        if count >= self._count:
            return self
        return SpanLines.of_text("\n".join(self._text.rsplit("\n", count)[1:]), count)

    def written(self, begin: str, end: str = "") -> str:
        r"""Return all lines as one text.

        Args:
            begin: what each begins with: a brace, and keys that are not the span's own.
            end: what stands between one and the end of its line; not behind the last.

        Examples:
            >>> SpanLines(['{"name":"a"}', '{"name":"b"}']).written('{"seq":7,', ";")
            '{"seq":7,"name":"a"};\n{"seq":7,"name":"b"}'
        """
        return _written(self._text, self._count, begin, end) if self._count else ""

    @property
    def text(self) -> str:
        """All lines in the form that `of_text` is given."""
        return self._text

    @property
    def nbytes(self) -> int:
        """Bytes in memory, about."""
        return getsizeof(self._text)

    @property
    def lines(self) -> Sequence[str]:
        """Each span as JSON."""
        return self.written("{").split("\n") if self else ()

    def rows(self) -> list[dict[str, Any]]:
        """Return each span as JSON has it, in a third of the time that it takes to make spans of all of them.

        Examples:
            >>> SpanLines(['{"name":"a"}', '{"name":"b"}']).rows()
            [{'name': 'a'}, {'name': 'b'}]
        """
        rows: list[dict[str, Any]] = json_value(f"[{self.written('{', ',')}]")
        return rows

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> Span: ...
    @overload
    def __getitem__(self, index: slice) -> SpanLines: ...
    def __getitem__(self, index: int | slice) -> Span | SpanLines:
        if isinstance(index, slice):
            return SpanLines(self.lines[index])
        return span_of(json.loads(self.lines[index]))

    def __iter__(self) -> Iterator[Span]:
        # By index, each span would have all lines written again: minutes for ten thousand.
        return map(span_of, self.rows())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(self) == len(other) and all(map(_equal, self, other))

    def __hash__(self) -> int:
        return hash(self._text)

    def __repr__(self) -> str:
        return f"SpanLines({list(self)!r})"


def _written_in_python(text: str, count: int, begin: str, end: str) -> str:
    del count  # which the compiled part needs, to ask for as much memory as it takes
    return begin + text.replace("\n", f"{end}\n{begin}")


_written: Callable[[str, int, str, str], str] = _written_in_python
if native is not None:
    _written = native.line_writer(_written_in_python)


def _equal(left: object, right: object) -> bool:
    return left == right


def _content(span: Span) -> Mapping[str, Any]:
    content = {name: getattr(span, name) for name in _NAMES}
    if links := content.pop("links"):
        content["links"] = links_as_json(links)
    return content


def links_as_json(links: Iterable[SpanLink]) -> list[dict[str, Any]]:
    """Return links as they stand in a line."""
    return [{name: getattr(link, name) for name in _OF_A_LINK} for link in links]


def span_of(content: Mapping[str, Any]) -> Span:
    """Return the span of a line that was read.

    Raises:
        TypeError: it has other keys than a span.
    """
    # Nearly all spans have none, and then nothing is copied.
    if "links" not in content:
        return Span(**content)
    return Span(**{**content, "links": tuple(SpanLink(**link) for link in content["links"])})
