"""What one request holds: frames of one kind, cut where there is too much in one for a receiver."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from otel_ml._internal.yield_interpreter import yield_interpreter
from otel_ml.exceptions import WireError
from otel_ml.wire.split_request import records_in, split_request
from otel_ml.wire.spool_format import Frame, Kind

__all__ = ["LEAST_BYTES", "Part", "Piece", "Request", "parts_of", "requests_of", "smaller"]

LEAST_BYTES = 2**15
"""Requests are not made smaller than this: a receiver that takes none of that size takes none at all."""


class Piece(Protocol):
    """A frame, or a part of one."""

    @property
    def length(self) -> int:
        """Bytes of the payload."""

    @property
    def points(self) -> int:
        """Points that have arrived once this piece has."""

    def payload(self) -> bytes:
        """Read it."""


class Part(NamedTuple):
    """A piece in memory; of a frame that was cut, the last one has the points of all."""

    content: bytes
    points: int

    @property
    def length(self) -> int:
        return len(self.content)

    def payload(self) -> bytes:
        return self.content


@dataclass(frozen=True, slots=True)
class Request:
    """Pieces that are posted together."""

    kind: Kind
    pieces: Sequence[Piece]

    @property
    def length(self) -> int:
        """Bytes of it, without the resource."""
        return sum(piece.length for piece in self.pieces)

    @property
    def points(self) -> int:
        """Points that have arrived once it has."""
        return sum(piece.points for piece in self.pieces)

    def payloads(self) -> Iterator[bytes]:
        """Read what it holds: thousands of frames, after an outage."""
        for piece in self.pieces:
            yield piece.payload()
            yield_interpreter()

    def records(self) -> int:
        """Return how many points, spans or log records are lost if it is."""
        return sum(_records(self.kind, piece) for piece in self.pieces)


def _records(kind: Kind, piece: Piece) -> int:
    # The points of a part are those that have arrived with it, so what it holds itself is counted in its bytes.
    if kind == "M" and not isinstance(piece, Part):
        return piece.points
    try:
        return records_in(kind, piece.payload())
    except WireError:
        return max(1, piece.points)


def parts_of(frames: Iterable[Frame]) -> list[Part]:
    """Return frames that were read from a file as pieces."""
    return [Part(frame.payload, frame.points) for frame in frames]


def requests_of(kind: Kind, pieces: Iterable[Piece], most: int) -> list[Request]:
    """Return requests of at most `most` bytes, as far as what they hold can be cut."""
    requests: list[Request] = []
    group: list[Piece] = []
    size = 0
    for piece in _cut_to(kind, pieces, most):
        # A piece that is too large by itself, and cannot be cut, is a request of its own.
        if group and size + piece.length > most:
            requests.append(Request(kind, group))
            group, size = [], 0
        group.append(piece)
        size += piece.length
        yield_interpreter()
    return [*requests, Request(kind, group)] if group else requests


def smaller(request: Request) -> list[Request]:
    """Return requests of half the size that hold the same; none where it can no longer be cut."""
    if request.length <= LEAST_BYTES:
        return []
    halves = requests_of(request.kind, request.pieces, max(LEAST_BYTES, request.length // 2))
    # A single request is the same again: nothing in it can be cut.
    return halves if len(halves) > 1 else []


def _cut_to(kind: Kind, pieces: Iterable[Piece], most: int) -> Iterator[Piece]:
    for piece in pieces:
        if piece.length <= most:
            yield piece
            continue
        try:
            contents = split_request(kind, piece.payload(), most, yield_interpreter)
        except WireError:  # damaged: the receiver says so
            contents = [piece.payload()]
        for content in contents[:-1]:
            yield Part(content, 0)
        yield Part(contents[-1], piece.points)
