"""Cuts what is too large for one request: between scopes, then metrics, spans and log records, then data points.

Each piece carries what stands before and after the items in the message that was cut (the scope with its `ml.seq` and
`ml.seq.points`, a metric's name), so that a receiver counts the pieces as the one message they were.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from otel_ml.wire.attributes import POSITION, WATERMARK
from otel_ml.wire.protobuf import encoded_fields, field, fields
from otel_ml.wire.spool_format import Kind

__all__ = ["records_in", "split_request"]

_Path = Sequence[frozenset[int]]
_Item = tuple[int, bytes, bytes]
"""A field: its number, all of it, and its value."""

_SCOPES, _ITEMS, _POINTS = frozenset({2}), frozenset({2}), frozenset({1})
_DATA = frozenset({5, 7, 9, 10, 11})
"""Metric: gauge, sum, histogram, exponential histogram, summary."""

_PATHS: dict[Kind, _Path] = {
    "M": (_SCOPES, _ITEMS, _DATA, _POINTS),
    "S": (_SCOPES, _ITEMS),
    "L": (_SCOPES, _ITEMS),
}
"""Which fields hold what can be taken apart, from the frame inwards."""

_PREFIX = 6
"""Bytes before a nested message at most: its tag and its length."""

_OF_THE_PROTOCOL = frozenset({WATERMARK.encode(), POSITION.encode()})


_REST_EVERY = 256
"""Fields, a quarter of a millisecond."""


def split_request(kind: Kind, payload: bytes, most: int, rest: Callable[[], None] = lambda: None) -> list[bytes]:
    """Return payloads that hold together what `payload` holds, in order.

    Args:
        kind: of the frame.
        payload: of the frame (`otel_ml.wire.spool_format`).
        most: bytes of each; a single data point, span or log record that is larger stays whole.
        rest: called every now and then: 40,000 metrics take 40 ms.

    Raises:
        WireError: `payload` is not what a frame of `kind` holds.
    """
    return list(_cut(payload, _PATHS[kind], most, rest))


def records_in(kind: Kind, payload: bytes) -> int:
    """Return how many data points, spans or log records a payload holds; the protocol's own points do not count.

    Raises:
        WireError: `payload` is not what a frame of `kind` holds.
    """
    items = [item for scope in _nested(payload, _SCOPES) for item in _nested(scope, _ITEMS)]
    return sum(map(_points_in, items)) if kind == "M" else len(items)


def _points_in(metric: bytes) -> int:
    if any(number == 1 and value in _OF_THE_PROTOCOL for number, value in fields(metric)):
        return 0
    return sum(1 for data in _nested(metric, _DATA) for _ in _nested(data, _POINTS))


def _nested(body: bytes, numbers: frozenset[int]) -> Iterator[bytes]:
    return (value for number, value in fields(body) if number in numbers and isinstance(value, bytes))


def _cut(body: bytes, path: _Path, most: int, rest: Callable[[], None]) -> Iterator[bytes]:
    if len(body) <= most or not path:
        yield body
        return
    before, items, after = _taken_apart(body, path[0], rest)
    # Each piece repeats what stands around its items.
    space = most - len(before) - len(after)
    for group in _groups(_fitting(items, path[1:], space, rest), space):
        yield before + group + after


def _taken_apart(body: bytes, numbers: frozenset[int], rest: Callable[[], None]) -> tuple[bytes, list[_Item], bytes]:
    """Return what stands before the fields of these numbers, those, and what stands between and after them."""
    before: list[bytes] = []
    items: list[_Item] = []
    after: list[bytes] = []
    for number, encoded, value in encoded_fields(body):
        if number in numbers and isinstance(value, bytes):
            items.append((number, encoded, value))
            if len(items) % _REST_EVERY == 0:
                rest()
        else:
            # What stands between items goes behind all of them: fields of other numbers have no order among these.
            (after if items else before).append(encoded)
    return b"".join(before), items, b"".join(after)


def _fitting(items: Iterable[_Item], path: _Path, space: int, rest: Callable[[], None]) -> Iterator[bytes]:
    for number, encoded, value in items:
        if len(encoded) <= space:
            yield encoded
        else:
            for piece in _cut(value, path, space - _PREFIX, rest):
                yield field(number, piece)


def _groups(parts: Iterable[bytes], space: int) -> Iterator[bytes]:
    group: list[bytes] = []
    size = 0
    for part in parts:
        if group and size + len(part) > space:
            yield b"".join(group)
            group, size = [], 0
        group.append(part)
        size += len(part)
    # Also where there are no items: what stands around them has to travel.
    yield b"".join(group)
