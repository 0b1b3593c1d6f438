"""How much longer than the usual rank each rank took in each step, from the spans of its timers."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import groupby, islice, zip_longest
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
    _open: dict[int, dict[tuple[int, str], float]] = field(default_factory=lambda: defaultdict(dict))
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
        while self._cells > self.most_cells and len(self._open) > 1:
            self._close(heappop(self._ascending))  # the smallest step: its ranks have most likely all told of it

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
                self._computed.clear()

    def _count(self, rows: Sequence[SpanRow]) -> None:
        """Add up what each rank took in each timer of each step."""
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

    def _of_step(self, step: int) -> dict[tuple[int, str], float]:
        if step not in self._open:
            heappush(self._ascending, step)
        return self._open[step]

    def _close(self, step: int) -> None:
        seconds = self._open.pop(step)
        self._cells -= len(seconds)
        self._computed.pop(step, None)
        self.slowdowns[step] = self._slowdown(seconds)
        self._slowdowns += len(self.slowdowns[step])
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
        for step, seconds in self._open.items():
            # By the number of its cells: a step to which a rank or a timer came is worked out anew.
            if self._computed.get(step, (0,))[0] != len(seconds):
                self._computed[step] = len(seconds), self._slowdown(seconds)
        newest = {step: slowdown for step, (_, slowdown) in self._computed.items()}
        found = dict(sorted({**self.slowdowns, **newest}.items()))
        while found and all(map(math.isnan, found[next(reversed(found))].values())):
            found.popitem()
        return found

    def _slowdown(self, seconds: Mapping[tuple[int, str], float]) -> Mapping[int, float]:
        ranks = sorted({rank for rank, _ in seconds} if len(self._ranks) > 1 else self._ranks)
        if len(ranks) == 1:  # nobody to compare it with
            return {ranks[0]: math.nan}
        names = dict.fromkeys(name for _, name in seconds)
        known = [name for name in self._known if name in names] + [name for name in names if name not in self._known]
        phases = [name for name in known if name not in self._around]
        if not phases:
            return dict.fromkeys(ranks, math.nan)
        # ranks × timers, in seconds; NaN where a rank did not have one
        table = np.array([[seconds.get((rank, name), math.nan) for name in phases] for rank in ranks])
        whole = np.array([seconds.get((rank, STEP), math.nan) for rank in ranks])
        longest = np.nanmax(whole) if not np.isnan(whole).all() else float(np.nansum(table, axis=1).max())
        works = np.array([not (is_waiting(name) or is_routed(name)) for name in phases])
        return dict(zip(ranks, _slowdowns(table, phases, works, longest).tolist(), strict=True))


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


def _slowdowns(seconds: Floats, phases: list[str], works: npt.NDArray[np.bool_], longest: float) -> Floats:
    groups = groups_of([None] * len(seconds), phases, ~np.isnan(seconds))
    usual = usual_of(seconds, groups)
    with np.errstate(invalid="ignore", divide="ignore"):
        least = max(_LEAST_S, longest / 10)
        slow = own_extra(seconds, usual, groups) / np.maximum(usual, least)
    # Who waits is not slow, nor who has the experts that a router prefers: -inf is never the largest.
    slow = np.where(works & ~np.isnan(slow), np.maximum(slow, 0.0), -np.inf)
    most: Floats = slow.max(axis=1)
    return np.where(np.isinf(most), np.nan, most)
