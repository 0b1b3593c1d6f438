"""What a window keeps of a fragment until it closes: who sent it, in which order, and its points."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from otel_ml.wire.reduction import Reduction
from otel_ml_service.aggregation.points import Attributes, Points, SeriesKey

__all__ = ["ColumnId", "Piece", "Shape", "Source", "fold_order", "values_in"]

ColumnId = tuple[str, Attributes, bool]


@dataclass(frozen=True, slots=True)
class Source:
    """What reducing needs to know of a writer.

    Attributes:
        number: the engine's own number of it.
        pool: instance of the process whose rank it pools with: its own, or its parent's.
        topology: dimension → coordinate.
        host: that it runs on, "" where it did not say.
    """

    number: int
    rank: int
    instance: str
    pool: str
    topology: dict[str, int] = field(default_factory=dict)
    with_role: bool = True
    host: str = ""


@dataclass(slots=True, eq=False)
class Shape:
    """The series of a fragment, interned: equal ones are one object.

    Attributes:
        number: the engine's own number of it, which its state entry is called after.
        users: windows that hold a piece of this shape.
        joined: (name, attributes, False) of each point.
        split: (name, attributes, whether it is a Gauge) of each point.
    """

    number: int
    series: tuple[SeriesKey, ...]
    users: int = 0
    joined: tuple[ColumnId, ...] = ()
    split: tuple[ColumnId, ...] = ()

    def __post_init__(self) -> None:
        self.joined = tuple((key.name, key.attributes, False) for key in self.series)
        self.split = tuple((key.name, key.attributes, key.kind == "order") for key in self.series)

    def meet(self, series: tuple[SeriesKey, ...]) -> None:
        """Hold an equal tuple from here on: the one that arrived last is found by its identity."""
        self.series = series

    def acquire(self) -> None:
        """Be used by one more piece of a window."""
        self.users += 1

    def release(self) -> None:
        """Be used by one piece less."""
        self.users -= 1


class Piece(NamedTuple):
    """A fragment, or what of it is not a duplicate; `newest_ns` is the time of its newest record.

    Attributes:
        meter: which meter (instrumentation scope) of another SDK sampled these values: of each series the newest
            sample of a step counts. None where all records count.
    """

    source: Source
    seq: int
    reduction: Reduction
    shape: Shape
    partials: Points
    newest_ns: int
    meter: str | None = None

    @property
    def size(self) -> int:
        """Bytes in memory, about."""
        return 400 + self.partials.nbytes

    @property
    def values(self) -> int:
        """Values of the user that it stands for."""
        if self.meter is not None:  # of another SDK: a sample is a value, and no part of what another point counts
            return len(self.partials.series)
        return values_in(self.partials, self.reduction)

    def some(self, rows: list[int], shape: Shape | None = None) -> Piece:
        """Return the piece with only these rows; `shape` where they have been interned."""
        some = self.partials.some(rows)
        # Number -1 is of no shape of the run: a piece that is kept has to be given an interned one.
        return self._replace(shape=shape or Shape(-1, some.series), partials=some, newest_ns=some.newest_ns)


def values_in(points: Points, reduction: Reduction) -> int:
    """Return how many values of the user points stand for, as their writer counts them (ADR 0031)."""
    return points.values(with_gauges=_has_gauges_alone(reduction))


@lru_cache(maxsize=1024)
def _has_gauges_alone(reduction: Reduction) -> bool:
    return not (reduction.needs_moments or reduction.needs_buckets)


def fold_order(piece: Piece) -> tuple[int, str, int, tuple[SeriesKey, ...]]:
    """Sort key: (rank, instance, seq); all pieces of a window have one role.

    Pieces of one split running number hold different series; the first one tells them apart.
    """
    return piece.source.rank, piece.source.instance, piece.seq, piece.shape.series[:1]
