"""Whose samples make a role train on old ones: told by what the mean staleness would be without that producer."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

__all__ = ["Consumed", "Stale", "StaleProducers"]

_WINDOW = 16
"""Steps whose samples are looked at together: staleness goes up and down with every pull of weights."""

_STEPS = 8
"""Steps in a row that a verdict needs, to begin and to end."""

_SHARE = 1 / 3
"""Of the mean staleness, which a stale producer makes at least."""

_VERSIONS = 1.0
"""Versions that it makes at least: below one nobody has to look."""

Who = tuple[str, int]
"""Role and rank of a producer."""


class Consumed(NamedTuple):
    """What a step took of one producer.

    Attributes:
        samples: how many.
        behind: versions that they were behind, on average.
    """

    samples: float
    behind: float


@dataclass(frozen=True, slots=True)
class Stale:
    """A producer without which the mean staleness were much less.

    Attributes:
        since: the first step of the trouble; `last` is the newest one that was looked at.
        behind: versions that its samples are behind; `others` those of all others.
        excess: versions that the mean of all would be less without it.
        is_over: it is so no longer.
    """

    role: str
    rank: int
    since: int
    last: int
    behind: float
    others: float
    excess: float
    is_over: bool = False


class StaleProducers:
    """Looks at one consumer role, step after step; at most one producer is stale at a time, that of the largest excess.

    Attributes:
        stale: who is now, or None.
    """

    def __init__(self) -> None:
        self.stale: Stale | None = None
        self._steps: deque[Mapping[Who, Consumed]] = deque(maxlen=_WINDOW)
        self._suspect: Stale | None = None
        self._counted = 0

    def step(self, step: int, consumed: Mapping[Who, Consumed]) -> Stale | None:
        """Take what a step consumed; return what began or is over with it.

        Examples:
            >>> fresh, old = Consumed(10, 1.0), Consumed(10, 7.0)
            >>> watch = StaleProducers()
            >>> found = [watch.step(n, {("generator", 0): fresh, ("generator", 1): old}) for n in range(10)]
            >>> [(one.rank, one.since, one.excess) for one in found if one is not None]
            [(1, 0, 3.0)]
        """
        if not consumed:
            return None
        self._steps.append(consumed)
        found = self._worst(step)
        return self._ended(step, found) if self.stale is not None else self._begun(found)

    def _begun(self, found: Stale | None) -> Stale | None:
        before = self._suspect
        is_same = found is not None and before is not None and _who(found) == _who(before)
        # Steps in a row of one suspect: of another one they begin anew.
        self._counted = 0 if found is None else self._counted + 1 if is_same else 1
        self._suspect = replace(found, since=before.since) if found and before and is_same else found
        if self._counted < _STEPS:
            return None
        self.stale, self._counted = self._suspect, 0
        return self.stale

    def _ended(self, step: int, found: Stale | None) -> Stale | None:
        stale = self.stale
        assert stale is not None
        if found is not None and _who(found) == _who(stale):
            self.stale, self._counted = replace(found, since=stale.since), 0
            return None
        # Steps in a row in which it was not the worst.
        self._counted += 1
        if self._counted < _STEPS:
            return None
        self.stale, self._suspect, self._counted = None, None, 0
        return replace(stale, last=step, is_over=True)

    def _worst(self, step: int) -> Stale | None:
        """Return who makes most of the staleness, where that is much."""
        sums: dict[Who, tuple[float, float]] = {}
        for consumed in self._steps:
            for who, (samples, behind) in consumed.items():
                number, total = sums.get(who, (0.0, 0.0))
                sums[who] = number + samples, total + samples * behind
        every = [self._of(step, who, sums) for who in sorted(sums)] if len(sums) > 1 else []
        worst = max(every, key=lambda one: one.excess, default=None)
        # `others` and `excess` together are the mean of all.
        if worst is None or worst.excess < max(_VERSIONS, _SHARE * (worst.others + worst.excess)):
            return None
        return worst

    def _of(self, step: int, who: Who, sums: Mapping[Who, tuple[float, float]]) -> Stale:
        number, total = sums[who]
        others = sum(samples for one, (samples, _) in sums.items() if one != who)
        behind_others = sum(behind for one, (_, behind) in sums.items() if one != who) / others
        mean = sum(behind for _, behind in sums.values()) / (number + others)
        excess = mean - behind_others
        return Stale(*who, since=step, last=step, behind=total / number, others=behind_others, excess=excess)


def _who(stale: Stale) -> Who:
    return stale.role, stale.rank
