"""Points without a running number, remembered for a while (docs/protocol.md §4.5): which series had one at a moment.

An SDK sends all series of a meter with one time. So one entry says of all of them that they came, and which they are
is said once for all moments.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from struct import Struct

from otel_ml_service.aggregation.piece import Shape
from otel_ml_service.aggregation.point_identities import SeriesOrigin
from otel_ml_service.aggregation.points import SeriesKey
from otel_ml_service.aggregation.recent_identities import SIZE

__all__ = ["RecentPoints"]

_MOST = 200_000
"""Series of which it is remembered how they are called here; a cache."""

_COORDINATES = Struct("<qQQ")

_SetId = bytes


class RecentPoints:
    """Two generations of moments: a point is remembered between one and two spans.

    Args:
        span_s: seconds of a generation.
        most: moments of a generation, or series that are told for them; one that has them is over.
    """

    def __init__(self, span_s: float, most: int = 500_000) -> None:
        self._span_s = span_s
        self._most = most
        self._young: dict[bytes, tuple[_SetId, ...]] = {}
        self._old: dict[bytes, tuple[_SetId, ...]] = {}
        self._young_sets: dict[_SetId, bytes] = {}
        self._old_sets: dict[_SetId, bytes] = {}
        self._told = 0
        self.generation = 0
        self._began: float | None = None
        self._added: list[tuple[int, bytes]] = []
        self._fresh: list[bytes] = []
        self._fresh_sets: dict[_SetId, bytes] = {}
        self._origins: dict[SeriesOrigin, bytes] = {}
        self._shapes: dict[int, tuple[_SetId, bytes]] = {}
        self._shaped = 0

    def __len__(self) -> int:
        """Return how many moments are remembered."""
        return len(self._young) + len(self._old)

    def news(
        self,
        origin: SeriesOrigin,
        shape: Shape,
        step: int | None,
        starts_ns: Sequence[int],
        times_ns: Sequence[int],
        rows: list[int],
        now: float,
    ) -> list[int]:
        """Remember points, and return the rows of those that did not come before.

        Args:
            origin: where they come from.
            shape: the series of each.
            step: of all; None where they have none.
            starts_ns: as they were sent; 0 where they were not.
            times_ns: as they were sent.
            rows: those that count, ascending.
            now: seconds since the epoch.
        """
        self._turn(now)
        if not rows:
            return rows
        # An SDK stamps all points of an export alike: that is found in C, without a loop over them.
        if starts_ns.count(starts_ns[0]) == len(starts_ns) and times_ns.count(times_ns[0]) == len(times_ns):
            return self._news(self._moment(origin, step, starts_ns[0], times_ns[0]), shape, rows)
        moments: dict[tuple[int, int], list[int]] = {}
        for row in rows:
            moments.setdefault((starts_ns[row], times_ns[row]), []).append(row)
        found = [
            row
            for moment, members in moments.items()
            for row in self._news(self._moment(origin, step, *moment), shape, members)
        ]
        return sorted(found)

    def _news(self, moment: bytes, shape: Shape, rows: list[int]) -> list[int]:
        name, digests = self._set_of(shape, rows)
        young, old = self._young.get(moment, ()), self._old.get(moment, ())
        if name in young or name in old:  # the same series at this moment, as a sender repeats a request
            return []
        # Others at this moment: a Collector splits and merges, so some of them may be among these.
        if young or old:
            known = {one for other in (*young, *old) for one in _cut(self._digests(other))}
            rows = [row for row, digest in zip(rows, _cut(digests), strict=True) if digest not in known]
            if not rows:
                return rows
            name, digests = self._set_of(shape, rows)
        self._young[moment] = (*young, name)
        self._fresh.append(moment + name)
        # Told once in each generation, so that either can be forgotten without the other.
        if name not in self._young_sets:
            self._young_sets[name] = self._fresh_sets[name] = digests
            self._told += len(rows)
        return rows

    def _moment(self, origin: SeriesOrigin, step: int | None, start_ns: int, time_ns: int) -> bytes:
        known = self._origins.get(origin)
        if known is None:
            if len(self._origins) >= _MOST:
                self._origins.clear()
            known = self._origins[origin] = _digest(repr(tuple(origin)))
        coordinates = _COORDINATES.pack(-1 if step is None else step, start_ns, time_ns)
        return blake2b(known + coordinates, digest_size=SIZE).digest()

    def _set_of(self, shape: Shape, rows: list[int]) -> tuple[_SetId, bytes]:
        """Return how a set of series is called, and the digests of them."""
        if len(rows) < len(shape.series):
            return _named(shape.series[row] for row in rows)
        known = self._shapes.get(shape.number)
        if known is None:
            self._shaped += len(rows)
            if self._shaped > _MOST:
                self._shapes.clear()
                self._shaped = len(rows)
            known = self._shapes[shape.number] = _named(shape.series)
        return known

    def _digests(self, name: _SetId) -> bytes:
        return self._young_sets.get(name) or self._old_sets[name]

    def _turn(self, now: float) -> None:
        if self._began is None:
            self._began = now
        elif now - self._began >= self._span_s or max(len(self._young), self._told) >= self._most:
            self._put_away()
            self._old, self._young = self._young, {}
            self._old_sets, self._young_sets = self._young_sets, {}
            self.generation += 1
            self._began, self._told = now, 0

    def take_fresh(self) -> list[tuple[int, bytes]]:
        """Return what was added since this was asked last, each with its generation."""
        self._put_away()
        added, self._added = self._added, []
        return added

    def _put_away(self) -> None:
        if self._fresh:
            sets = {name.hex(): digests.hex() for name, digests in self._fresh_sets.items()}
            self._added.append((self.generation, json.dumps(sets).encode() + b"\n" + b"".join(self._fresh)))
            self._fresh, self._fresh_sets = [], {}

    def state(self) -> list[object]:
        """Return what `restore` needs besides what was added."""
        return [self.generation, self._began]

    def restore(self, state: list[object], added: Mapping[int, Sequence[bytes]]) -> None:
        """Continue from `state()` and what was added in each generation."""
        self.generation, self._began = state  # type: ignore[assignment]
        for generation, chunks in added.items():
            # State has this generation and the one before it, of which nothing is added to anymore.
            is_young = generation == self.generation
            moments, sets = (self._young, self._young_sets) if is_young else (self._old, self._old_sets)
            for chunk in chunks:
                line, _, body = chunk.partition(b"\n")
                sets.update((bytes.fromhex(name), bytes.fromhex(told)) for name, told in json.loads(line).items())
                for record in _cut(body, 2 * SIZE):
                    moments[record[:SIZE]] = (*moments.get(record[:SIZE], ()), record[SIZE:])
        self._told = sum(len(digests) // SIZE for digests in self._young_sets.values())


def _named(series: Iterable[SeriesKey]) -> tuple[_SetId, bytes]:
    joined = b"".join(_digest(repr(tuple(key))) for key in series)
    return blake2b(joined, digest_size=SIZE).digest(), joined


def _digest(text: str) -> bytes:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=SIZE).digest()


def _cut(joined: bytes, size: int = SIZE) -> list[bytes]:
    return [joined[start : start + size] for start in range(0, len(joined), size)]
