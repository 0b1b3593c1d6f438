"""How much longer than the usual rank each rank took in each step, from the spans of its timers."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import groupby, islice, repeat, zip_longest
from operator import itemgetter

import numpy as np
import numpy.typing as npt

from otel_ml_exporters.span_lines import span_of
from otel_ml_service.findings.blame import own_extra
from otel_ml_service.findings.nesting import parents_of
from otel_ml_service.findings.peers import groups_of, usual_of
from otel_ml_service.findings.phases import STEP, in_order, is_routed, is_waiting
from otel_ml_service.stored_runs.read_spans import SpanRow

__all__ = ["RankTimes"]

Floats = npt.NDArray[np.float64]

_Cell = tuple[int, str]
"""Rank and timer."""
_Seconds = Mapping[_Cell, float]
"""Of a step: what each rank took in each timer."""

_CELLS = 300_000
"""Of seconds (step, rank, timer) that are held; of older steps only the slow-downs are."""
_SLOWDOWNS = 500_000
"""Of (step, rank) that are held: of more, two steps become the one in which a rank was slower."""
_SAMPLES = 64
"""Ranks' steps from which the order of timers, and which is around which, is learned."""
_LEAST_S = 0.01
"""A phase shorter than this, or than a tenth of the step, is measured against it, as findings are."""


@dataclass
class RankTimes:
    """What one role took on one axis.

    Attributes:
        most_cells, most_slowdowns: how much is held at most.
        slowdowns: step → rank → its largest slow-down among the timers of work; 0.31 is 31 % longer.
        is_thinned: whether some of these steps stand for several.
    """

    most_cells: int = _CELLS
    most_slowdowns: int = _SLOWDOWNS
    slowdowns: dict[int, Mapping[int, float]] = field(default_factory=dict)
    is_thinned: bool = False
    _open: dict[int, dict[_Cell, float]] = field(default_factory=lambda: defaultdict(dict))
    _ascending: list[int] = field(default_factory=list)
    _ranks: set[int] = field(default_factory=set)
    _cells: int = 0
    _looks: int = 0
    _slowdowns: int = 0
    _around: set[str] = field(default_factory=lambda: {STEP})
    _orders: list[tuple[str, ...]] = field(default_factory=list)
    _known: dict[str, None] = field(default_factory=dict)
    _computed: dict[int, tuple[int, Mapping[int, float]]] = field(default_factory=dict)

    def add(self, rows: Sequence[SpanRow]) -> None:
        """Take spans of the role and axis, each with a step."""
        if self._looks < _SAMPLES:
            self._learn(rows)
        self._ranks.update(map(itemgetter("rank"), rows))
        self._count(rows)
        self._close(list(self._too_many()))

    def _too_many(self) -> Iterator[tuple[int, _Seconds]]:
        """Take out the smallest steps: their ranks have most likely all told of them."""
        while self._cells > self.most_cells and len(self._open) > 1:
            # A heap, since steps of several ranks arrive in any order.
            step = heappop(self._ascending)
            self._computed.pop(step, None)
            seconds = self._open.pop(step)
            self._cells -= len(seconds)
            yield step, seconds

    def _learn(self, rows: Sequence[SpanRow]) -> None:
        """Look at how the timers of the first ranks' steps follow each other."""
        for _, found in islice(groupby(rows, key=itemgetter("rank", "step")), _SAMPLES - self._looks):
            self._looks += 1
            spans = list(map(span_of, found))
            self._around.update(parents_of(spans).values())
            begun = sorted(spans, key=lambda span: span.start_ns)
            order = tuple(dict.fromkeys(span.name for span in begun))
            if order not in self._orders:
                self._orders.append(order)
                self._known = dict.fromkeys(in_order(self._orders))
                # Another order of timers, or one that is around others, makes other slow-downs of the same seconds.
                self._computed.clear()

    def _count(self, rows: Sequence[SpanRow]) -> None:
        """Add up what each rank took in each timer of each step."""
        # Spans of one step stand together, so the look-up of a step is spared for most.
        last, seconds = None, {}
        for row in rows:
            step = row["step"]
            if step != last:
                last, seconds = step, self._of_step(step)
            cell = row["rank"], row["name"]
            taken = (row["end_ns"] - row["start_ns"]) / 1e9
            if cell in seconds:
                seconds[cell] += taken
            else:
                seconds[cell] = taken
                self._cells += 1

    def _of_step(self, step: int) -> dict[_Cell, float]:
        if step not in self._open:
            heappush(self._ascending, step)
        return self._open[step]

    def _close(self, steps: Sequence[tuple[int, _Seconds]]) -> None:
        found = self._slowdowns_of([seconds for _, seconds in steps])
        for (step, _), slowdown in zip(steps, found, strict=True):
            self.slowdowns[step] = slowdown
            self._slowdowns += len(slowdown)
            if self._slowdowns > self.most_slowdowns and len(self.slowdowns) > 1:
                self._halve()

    def _halve(self) -> None:
        every = sorted(self.slowdowns.items())
        # Of an odd number the last one goes with itself.
        pairs = zip_longest(every[::2], every[1::2], fillvalue=every[-1])
        self.slowdowns = dict(_worse(first, second) for first, second in pairs)
        self._slowdowns = sum(map(len, self.slowdowns.values()))
        self.is_thinned = True

    def all(self) -> dict[int, Mapping[int, float]]:
        """Return step → rank → slow-down, ascending; NaN of a rank that is alone with its timers.

        The newest steps of which nothing can be compared yet are left out: of a rank that is alone, all of them.
        """
        if len(self._ranks) < 2:
            return {}
        # By the number of its cells: a step to which a rank or a timer came is worked out anew.
        new = [(step, of) for step, of in self._open.items() if self._computed.get(step, (0,))[0] != len(of)]
        for (step, seconds), slowdown in zip(new, self._slowdowns_of([of for _, of in new]), strict=True):
            self._computed[step] = len(seconds), slowdown
        newest = {step: slowdown for step, (_, slowdown) in self._computed.items()}
        found = dict(sorted({**self.slowdowns, **newest}.items()))
        while found and all(map(math.isnan, found[next(reversed(found))].values())):
            found.popitem()
        return found

    def _slowdowns_of(self, steps: Sequence[_Seconds]) -> Sequence[Mapping[int, float]]:
        """Return what each rank of each step was slow, of steps that are alike at once: most have the same timers."""
        if len(self._ranks) == 1:  # nobody to compare it with
            return [dict.fromkeys(self._ranks, math.nan)] * len(steps)
        alike: dict[tuple[frozenset[_Cell], tuple[str, ...]], list[int]] = defaultdict(list)
        for place, seconds in enumerate(steps):
            unknown = tuple(dict.fromkeys(name for _, name in seconds if name not in self._known))
            alike[frozenset(seconds), unknown].append(place)
        found: list[Mapping[int, float]] = [{}] * len(steps)
        for (cells, unknown), places in alike.items():
            slow = self._of_alike(cells, (*self._known, *unknown), [steps[place] for place in places])
            for place, slowdown in zip(places, slow, strict=True):
                found[place] = slowdown
        return found

    def _of_alike(
        self, cells: frozenset[_Cell], known: Sequence[str], steps: Sequence[_Seconds]
    ) -> Iterable[Mapping[int, float]]:
        """Return the same of steps of which each has these cells; `known` are timers in their order."""
        ranks, names = sorted({rank for rank, _ in cells}), {name for _, name in cells}
        phases = [name for name in known if name in names and name not in self._around]
        if len(ranks) == 1 or not phases:
            return repeat(dict.fromkeys(ranks, math.nan), len(steps))
        # ranks × steps × timers, in seconds; NaN where a rank did not have one
        table = np.array([[[of.get((rank, name), math.nan) for name in phases] for of in steps] for rank in ranks])
        whole = np.array([[of.get((rank, STEP), math.nan) for of in steps] for rank in ranks])
        longest = np.nansum(table, axis=2).max(axis=0) if np.isnan(whole).all() else np.nanmax(whole, axis=0)
        works = np.array([not (is_waiting(name) or is_routed(name)) for name in phases])
        return (dict(zip(ranks, of, strict=True)) for of in _slowdowns(table, phases, works, longest).T.tolist())


_OfStep = tuple[int, Mapping[int, float]]


def _worse(first: _OfStep, second: _OfStep) -> _OfStep:
    """Return the worst of each rank in two steps, at the step in which the slowest of all was."""
    both = {
        rank: np.fmax(first[1].get(rank, math.nan), second[1].get(rank, math.nan)) for rank in {**first[1], **second[1]}
    }
    worst = max(
        first, second, key=lambda one: max((value for value in one[1].values() if value == value), default=-1.0)
    )
    return worst[0], {rank: float(value) for rank, value in both.items()}


def _slowdowns(seconds: Floats, phases: list[str], works: npt.NDArray[np.bool_], longest: Floats) -> Floats:
    """Return the largest one of each rank and step [ranks, steps]; `longest` is how long each step is."""
    groups = groups_of([None] * len(seconds), phases, ~np.isnan(seconds[:, 0]))
    usual = usual_of(seconds, groups)
    with np.errstate(invalid="ignore", divide="ignore"):
        least = np.maximum(_LEAST_S, longest / 10)[:, None]
        slow = own_extra(seconds, usual, groups) / np.maximum(usual, least)
    # Who waits is not slow, nor who has the experts that a router prefers: -inf is never the largest.
    slow = np.where(works & ~np.isnan(slow), np.maximum(slow, 0.0), -np.inf)
    most: Floats = slow.max(axis=2)
    return np.where(np.isinf(most), np.nan, most)
