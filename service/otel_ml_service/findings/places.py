"""Several ranks that are slow together: their host, or the coordinates that they have in common, is named once.

A place is named where nearly all of its ranks are slow in a phase, and nearly nobody outside of such places is. Each of
its ranks was compared with those that do the same work (`peers.py`), so no place is named for having other work. Hosts
come first, then one coordinate (`dp 2`), then several (`dp 2, pp 1`: the tensor-parallel group there). A rank that was
found a few steps before the others of its place waits for them, so that it is not accused alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations

import numpy as np

from otel_ml_service.findings.detector import Detector
from otel_ml_service.findings.finding import Finding, rank_number
from otel_ml_service.findings.step_timers import StepTimers

__all__ = ["Places", "common_places"]

_HOST = "host"
_NEARLY_ALL = 0.75
"""Of the ranks of a place."""
_NEARLY_NOBODY = 0.1
"""Of the slow ranks, outside of places that are slow."""
_FEW = 0.5
"""Of all places of a kind; where more are slow, it is none of them."""
_TIMEOUT_STEPS = 8
"""Steps that a rank waits for the others of its place."""

_DIMENSIONS, _TOGETHER = 6, 3
"""Coordinates that are looked at, and how many of them make a place."""
_LAST_ONES = 16
"""Steps after which those that are still slow where most are no longer are told for themselves."""

Key = tuple[int, str]
"""Rank and phase."""

Named = Mapping[str, frozenset[int]]
"""Name of a place → its ranks."""


@dataclass(slots=True)
class _Place:
    """A place that is slow in a phase.

    Attributes:
        ranks: all of its ranks; `slow` are those that are slow now, `hidden` those of them that are told with it alone.
        told: as it stands.
        ended: findings of its ranks that are over.
        saved_before: what its steps would have been shorter without it, before it seemed to be over; else None.
    """

    ranks: frozenset[int]
    told: Finding
    slow: set[int] = field(default_factory=set)
    hidden: set[int] = field(default_factory=set)
    ended: list[Finding] = field(default_factory=list)
    saved_before: float | None = None

    def begin(self, rank: int) -> None:
        """Note that one of its ranks is slow, perhaps again: what it ended with before is not an end then."""
        self.slow.add(rank)
        self.hidden.add(rank)
        self.ended = [one for one in self.ended if rank_number(one) != rank]

    def end(self, finding: Finding) -> None:
        """Note that one of its ranks is as quick as the others again."""
        rank = rank_number(finding)
        self.slow.discard(rank)
        self.hidden.discard(rank)
        self.ended.append(finding)

    def of(self, members: Sequence[Finding]) -> Finding:
        """Return what is told of it, as the rank that costs most has it; critical where one of them is."""
        # What lasts is told as it is now, what is over by what it has cost.
        worst = max(members, key=lambda one: (one.cost_s, one.extra_s) if one.is_over else (0.0, one.extra_s))
        return replace(
            worst,
            rank=None,
            where=self.told.where,
            ranks=tuple(sorted(map(rank_number, members))),
            since=self.told.since,
            level="critical" if any(one.level == "critical" for one in members) else "warning",
            saved_s=self.told.saved_s if self.saved_before is None or not worst.is_over else self.saved_before,
            others_wait=self.told.others_wait,
        )


class Places:
    """Stands between who is found slow and what is told.

    Attributes:
        open: (name of the place, phase) → what is slow.
    """

    def __init__(self, open_findings: Sequence[Finding] = (), of_ranks: Sequence[Finding] = ()) -> None:
        self.open: dict[tuple[str, str], _Place] = {}
        self._waiting: dict[Key, int] = {}  # for how many steps
        self._told: set[Key] = {(rank_number(one), one.phase) for one in of_ranks}
        for one in open_findings:
            ranks = frozenset(one.ranks)
            self.open[one.where, one.phase] = _Place(ranks, one, set(ranks), set(ranks))

    def step(self, step: int, found: Sequence[Finding], detector: Detector, timers: StepTimers) -> list[Finding]:
        """Return what is told of what was found in a step.

        Args:
            step: its number.
            found: what began, changed its level, or ended with it.
            detector: that found it.
            timers: of the step.
        """
        if not (found or self._waiting or self.open):
            return []
        self._waiting = {key: steps + 1 for key, steps in self._waiting.items()}
        told = [one for one in found if self._is_told(one)]
        # In the order in which ranks began to wait, and each phase once: a set has an order of its own.
        for phase in {phase: None for _, phase in self._waiting}:
            told += self._named(phase, detector, timers)
            told += self._given_up(phase, detector, timers)
        return [*told, *self._followed(step, detector)]

    def finish(self, over: Sequence[Finding]) -> list[Finding]:
        """Return what is told when all of it ends."""
        told = [one for one in over if not self.hides((rank_number(one), one.phase))]
        told += [replace(place.told, is_over=True) for place in self.open.values()]
        self.open.clear()
        self._waiting.clear()
        self._told.clear()
        return told

    def hides(self, key: Key) -> bool:
        """Whether a rank is not told for itself."""
        rank, phase = key
        return key in self._waiting or any(rank in place.hidden for place in self._in(phase))

    def save(self, where: str, phase: str, told: Finding, *, seems_over: bool) -> None:
        """Note what its steps would be shorter without a place, and what it was before that seemed to be over."""
        place = self.open[where, phase]
        if not seems_over:
            place.saved_before = None
        elif place.saved_before is None:
            place.saved_before = place.told.saved_s
        place.told = told

    def _in(self, phase: str) -> Iterator[_Place]:
        return (place for (_, of_it), place in self.open.items() if of_it == phase)

    def _is_told(self, one: Finding) -> bool:
        """Whether a finding is told at once, and as that of a rank."""
        rank, key = rank_number(one), (rank_number(one), one.phase)
        if one.kind != "slow":
            return True
        if one.is_over:
            return self._ends(key, one)
        if key in self._told:
            return True
        place = next((place for place in self._in(one.phase) if rank in place.ranks), None)
        # The place was told: who joins it is not told for itself.
        if place is not None:
            place.begin(rank)
        else:
            self._waiting.setdefault(key, 0)
        return False

    def _ends(self, key: Key, one: Finding) -> bool:
        is_told = not self.hides(key) or key in self._waiting
        self._told.discard(key)
        self._waiting.pop(key, None)
        for place in self._in(one.phase):
            if key[0] in place.slow:
                place.end(one)
        return is_told

    def _named(self, phase: str, detector: Detector, timers: StepTimers) -> list[Finding]:
        """Name the places that ranks which wait for others have in common with them."""
        # Whoever is slow with a place that was told does not speak for another one.
        elsewhere = {rank for place in self._in(phase) for rank in place.slow}
        slow = detector.slow_in(phase) - elsewhere
        return [
            self._begin(where, ranks, phase, slow & ranks, detector)
            for where, ranks in common_places(slow, phase, timers).items()
        ]

    def _begin(self, where: str, ranks: frozenset[int], phase: str, slow: set[int], detector: Detector) -> Finding:
        members = [detector.open[rank, phase] for rank in sorted(slow)]
        # The lower median: one rank that had been slow before is not since when the place is.
        since = sorted(one.since for one in members)[(len(members) - 1) // 2]
        place = _Place(ranks, replace(members[0], where=where, since=since, saved_s=0.0), slow)
        place.hidden = {rank for rank in slow if self._waiting.pop((rank, phase), None) is not None}
        place.told = place.of(members)
        self.open[where, phase] = place
        return place.told

    def _given_up(self, phase: str, detector: Detector, timers: StepTimers) -> list[Finding]:
        """Return the ranks that wait for others in vain."""
        suspects = detector.slow_in(phase) | detector.suspects(phase)
        likely = {rank for ranks in common_places(suspects, phase, timers).values() for rank in ranks}
        given_up = [
            key
            for key, steps in self._waiting.items()
            if key[1] == phase and (key[0] not in likely or steps >= _TIMEOUT_STEPS)
        ]
        return [self._alone(key, detector) for key in given_up]

    def _alone(self, key: Key, detector: Detector) -> Finding:
        self._waiting.pop(key, None)
        self._told.add(key)
        return detector.open[key]

    def _followed(self, step: int, detector: Detector) -> list[Finding]:
        """Return the places whose level changed, or that are as quick as the others again."""
        told: list[Finding] = []
        for (where, phase), place in list(self.open.items()):
            slow = [detector.open[rank, phase] for rank in place.slow if (rank, phase) in detector.open]
            # While most are slow, and a while longer: ranks do not become quick in one step.
            # `ended` has at least as many as are slow where the second question is asked, so it is not empty.
            if len(slow) > len(place.ended) or (slow and step - place.ended[-1].last < _LAST_ONES):
                before, place.told = place.told, place.of(slow)
                told += [place.told] if before.level != place.told.level else []
                continue
            del self.open[where, phase]
            told.append(replace(place.of(place.ended), is_over=True))
            told += [
                self._alone((rank_number(one), phase), detector) for one in slow if rank_number(one) in place.hidden
            ]
        return told


def common_places(slow: Collection[int], phase: str, timers: StepTimers) -> Named:
    """Return the places that are slow, of the kind of which the fewest are; none where ranks have nothing in common.

    Examples:
        >>> import numpy as np
        >>> timers = StepTimers((0, 1, 2, 3), ("forward",), np.ones((4, 1)), hosts=("n1", "n1", "n2", "n2"))
        >>> {where: sorted(ranks) for where, ranks in common_places({2, 3}, "forward", timers).items()}
        {'host n2': [2, 3]}
        >>> common_places({1, 3}, "forward", timers), common_places({2}, "forward", timers)
        ({}, {})
    """
    if len(slow) < 2 or phase not in timers.phases:
        return {}
    has = ~np.isnan(timers.seconds[:, timers.phases.index(phase)])
    timed = [rank for rank, is_there in zip(timers.ranks, has.tolist(), strict=True) if is_there]
    # Hosts first, so of kinds with as few slow places hosts are taken.
    of_one = [found for named in _of_one(timed, timers) if (found := _slow_ones(slow, named))]
    if of_one:
        return min(of_one, key=len)
    return next((found for named in _of_several(timed, timers) if (found := _slow_ones(slow, named))), {})


def _slow_ones(slow: Collection[int], named: Named) -> Named:
    found = {
        where: ranks
        for where, ranks in named.items()
        if len(ranks) > 1 and len(ranks.intersection(slow)) >= _NEARLY_ALL * len(ranks)
    }
    outside = set(slow).difference(*found.values())
    return found if len(found) <= _FEW * len(named) and len(outside) <= _NEARLY_NOBODY * len(slow) else {}


def _of_one(timed: Sequence[int], timers: StepTimers) -> Iterator[Named]:
    """Yield hosts, and the places of each coordinate."""
    hosts = dict(zip(timers.ranks, timers.hosts, strict=False))
    yield _by({rank: f"{_HOST} {hosts[rank]}" for rank in timed if hosts.get(rank)})
    for dimension in _dimensions(timers):
        yield _by_coordinates((dimension,), timed, timers)


def _of_several(timed: Sequence[int], timers: StepTimers) -> Iterator[Named]:
    dimensions = _dimensions(timers)
    for count in range(2, _TOGETHER + 1):
        for some in combinations(dimensions, count):
            yield _by_coordinates(some, timed, timers)


def _dimensions(timers: StepTimers) -> list[str]:
    return sorted({dimension for topology in timers.topologies for dimension in topology})[:_DIMENSIONS]


def _by_coordinates(dimensions: Sequence[str], timed: Sequence[int], timers: StepTimers) -> Named:
    of_rank = dict(zip(timers.ranks, timers.topologies, strict=False))
    return _by(
        {
            rank: ", ".join(f"{dimension} {of_rank[rank][dimension]}" for dimension in dimensions)
            for rank in timed
            if all(dimension in of_rank.get(rank, {}) for dimension in dimensions)
        }
    )


def _by(names: Mapping[int, str]) -> Named:
    ranks: dict[str, set[int]] = {}
    for rank, name in names.items():
        ranks.setdefault(name, set()).add(rank)
    return {name: frozenset(members) for name, members in ranks.items()}
