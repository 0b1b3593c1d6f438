"""Steps in which ranks stand still now and then: to load data, to write a checkpoint, to collect garbage.

A step that is far longer than the usual one, three steps in a row at most, is a pause where one phase takes nearly all
of what it is longer. Three of them in a phase are a finding, which is the same one for as long as they go on. A rank is
only named where it is the one that stands still each time, and chance would not pick it so often: whoever has a turn
is not slow. The others may wait for it in a later step, as long as it stood still: that is the same time, and no pause.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import NamedTuple

import numpy as np

from otel_ml_service.findings.finding import Finding, Level
from otel_ml_service.findings.frontier import Exposed
from otel_ml_service.findings.peers import is_pipeline
from otel_ml_service.findings.phases import STEP, accuses, is_pausing, is_waiting
from otel_ml_service.findings.step_timers import StepTimers
from otel_ml_service.findings.thresholds import Thresholds

__all__ = ["Pauses"]

_DEFAULTS = Thresholds()

_REMEMBERED, _FEW = 16, 8
"""Usual steps that a step is compared with, and how few are too few."""
_KEPT = 32
"""Pauses of which the distances are remembered."""
_LONGER = 0.25
"""Of the usual step; less is not a pause."""
_LEAST_S = 0.1
"""What is shorter the operating system of a busy host does to any phase."""
_SCATTERS = 8.0
"""Median absolute deviations of usual steps that a pause is longer."""
_NEARLY_ALL = 0.8
"""Of what a step is longer, in one phase."""
_IN_A_ROW = 4
"""So many long steps in a row are another level, and no pause."""
_LEAST = 3
"""Pauses that make a finding."""
_WORTH = 0.01
"""Of the usual step: what pauses cost a step, at least."""
_DECIDED = 6
"""Pauses of one rank after which it is nobody, if that may be chance still."""
_CHANCE = 1e-3
_BACK = 0.5
"""Of what a pause is longer: a step before or after it that is longer by more shows another level."""
_TIGHT = 0.02
"""Deviations of the usual step, as a share, with which a long phase of work is a pause, and no long sequence."""
_NOTHING_BETWEEN = 3
"""Times that such a pause is longer than anything else lately."""
_A_PART = 0.1
"""Of the usual step: two phases of work at least have it."""
_GAPS, _LEAST_GAP = 3, 32
"""Without a pause for so many times the longest distance, and for so many steps, they are over."""

DIFFERENT = ""
"""The phase of pauses in whatever a rank works at."""


class _Long(NamedTuple):
    """A long step: its number, by how much, the phase that takes it, the rank that stands still alone."""

    step: int
    seconds: float
    phase: str | None
    rank: int | None


@dataclass(slots=True)
class _Seen:
    """Pauses of one phase.

    Attributes:
        steps: the last ones.
        ranks: which rank stood still alone, and how often; None where it was no single one.
        longest: distance between two.
        told: what was found; None before.
    """

    phase: str
    since: int
    steps: deque[int] = field(default_factory=lambda: deque(maxlen=_KEPT))
    ranks: Counter[int | None] = field(default_factory=Counter)
    times: int = 0
    cost_s: float = 0.0
    longest: int = 1
    told: Finding | None = None

    def add(self, pause: _Long) -> None:
        if self.steps:
            self.longest = max(self.longest, pause.step - self.steps[-1])
        self.steps.append(pause.step)
        self.ranks[pause.rank] += 1
        self.times += 1
        self.cost_s += pause.seconds

    @property
    def every(self) -> int | None:
        """The distance that four in five have; None where there is none."""
        distances = Counter(after - before for before, after in pairwise(self.steps))
        [(distance, count)] = distances.most_common(1) or [(0, 0)]
        return distance if count >= 2 and count >= _NEARLY_ALL * distances.total() else None

    def is_over(self, step: int) -> bool:
        return step - self.steps[-1] > max(_GAPS * self.longest, _LEAST_GAP)


class Pauses:
    """Looks at the steps of one role, axis and attempt, in their order."""

    def __init__(self, open_findings: Sequence[Finding] = ()) -> None:
        self._lengths: deque[float] = deque()
        self._sorted: list[float] = []
        self._accounts: deque[Sequence[Exposed]] = deque(maxlen=_REMEMBERED)
        self._row: list[tuple[_Long, float, Sequence[Exposed]]] = []
        self._step = max((one.last for one in open_findings), default=0)
        self._ranks = 0
        self._is_sure = False
        self._late: tuple[int, frozenset[int]] = 0, frozenset()
        """Step → ranks that came late out of it, and that nobody has waited for since."""
        self._seen = {_key(one.phase): _restored(one) for one in open_findings}

    def step(self, step: int, account: Sequence[Exposed], timers: StepTimers) -> list[Finding]:
        """Take a step; return the findings that began, changed their level, or ended with it.

        Args:
            step: its number.
            account: where its time goes; empty where nobody knows.
            timers: of the step.
        """
        self._step, self._ranks = step, len(timers.ranks)
        length = sum(phase.seconds for phase in account)
        if not 0 < length < math.inf:
            return []
        longer = self._longer(length)
        if longer is None:
            found = self._noted() if self._is_back(length) else []
            self._row.clear()
            self._remember(length, account)
            return [*found, *self._ended()]
        self._row.append((self._long(step, longer, account, timers), length, account))
        if len(self._row) >= _IN_A_ROW:
            return self._begin_another_level()
        return []

    def phase_of(self, step: int) -> str | None:
        """Return the phase of the newest step that is one of the pauses that were told; None where it is none."""
        if not self._row or self._row[-1][0].step != step:
            return None
        phase = self._row[-1][0].phase
        seen = None if phase is None else self._seen.get(_key(phase))
        return phase if seen is not None and seen.told is not None else None

    @property
    def open(self) -> list[Finding]:
        """What goes on."""
        return [self._described(seen) for seen in self._seen.values() if seen.told is not None]

    def take_last(self) -> list[Finding]:
        """Take the steps that were long last: no other one comes. Return what is found with them.

        In a phase that has paused before: else they may be another level.
        """
        self._row = [one for one in self._row if one[0].phase is not None and _key(one[0].phase) in self._seen]
        found = self._noted() if self._is_back(self._usual) else []
        self._row.clear()
        return found

    def finish(self) -> list[Finding]:
        """Forget what goes on; return it as over: another attempt begins."""
        self.take_last()
        over = [self._described(seen, is_over=True) for seen in self._seen.values() if seen.told is not None]
        self._seen.clear()
        return over

    @property
    def _usual(self) -> float:
        return self._sorted[len(self._sorted) // 2] if self._sorted else 0.0

    def _longer(self, length: float) -> float | None:
        """Return by how much a step is longer than the usual one; None if it is not, or too little is known."""
        # Once: after another level four steps are enough, for they were seen to be alike.
        self._is_sure = self._is_sure or len(self._sorted) >= _FEW
        if not self._is_sure:
            return None
        usual = self._usual
        longer = length - usual
        # The deviations last: to sort them costs more than the others, and most steps are none of it.
        if longer <= max(_LONGER * usual, _LEAST_S) or longer <= _SCATTERS * self._scatter():
            return None
        return longer

    def _is_back(self, length: float) -> bool:
        """Whether the steps around those that were long are usual ones."""
        if not self._row:
            return True
        # The usual step before the row, and the one after it.
        around = max(length, self._lengths[-1]) - self._usual
        return around <= _BACK * min(longer.seconds for longer, _, _ in self._row)

    def _scatter(self) -> float:
        usual = self._usual
        return median(abs(one - usual) for one in self._sorted)

    def _remember(self, length: float, account: Sequence[Exposed]) -> None:
        if len(self._lengths) == _REMEMBERED:
            del self._sorted[bisect_left(self._sorted, self._lengths.popleft())]
        self._lengths.append(length)
        insort(self._sorted, length)
        self._accounts.append(account)

    def _begin_another_level(self) -> list[Finding]:
        """Take the long steps for the usual ones from now on, but for those that are long for another reason."""
        # A checkpoint may fall into the first steps of another level: it is not a part of it.
        [(phase, _)] = Counter(long.phase for long, _, _ in self._row).most_common(1)
        usual = [one for one in self._row if one[0].phase == phase]
        self._row = [one for one in self._row if one[0].phase != phase]
        self._lengths.clear()
        self._sorted.clear()
        self._accounts.clear()
        found = self._noted()
        self._row.clear()
        for _, length, account in usual:
            self._remember(length, account)
        self._is_sure = True
        return found

    def _long(self, step: int, longer: float, account: Sequence[Exposed], timers: StepTimers) -> _Long:
        usual = self._usual_phases()
        grown = {one.phase: one.seconds - usual.get(one.phase, 0.0) for one in account}
        phase = max(grown, key=lambda name: grown[name])
        is_wait = self._is_wait_for_the_late(step, phase, _whose_is_longer(timers, self._usual + longer / 2), timers)
        if is_wait or grown[phase] < _NEARLY_ALL * longer or not self._pauses(phase, longer, usual, timers):
            return _Long(step, longer, None, None)
        # Who is at the front of the phase is the one that all wait for, if others are not as long in it.
        front = next(one.rank for one in account if one.phase == phase)
        return _Long(step, longer, phase, front if _is_alone(front, phase, usual, longer, timers) else None)

    def _is_wait_for_the_late(self, step: int, phase: str, long: frozenset[int], timers: StepTimers) -> bool:
        """Whether a step is long for those who wait for a rank that had stood still before; note who is late now."""
        # Ranks that came late out of a step before are waited for in this one by all others, once.
        since, late = self._late
        is_alone = 0 < len(long) < len(timers.ranks)
        self._late = step, long if is_alone else frozenset()
        if not is_alone or not late or late & long or step - since > _REMEMBERED:
            return False
        # Where waiting is not timed, those who wait are longer in whatever timer they wait in: all but who was late.
        is_wait = is_waiting(phase) or (len(long) > 1 and late | long == frozenset(timers.ranks))
        if is_wait:
            self._late = step, frozenset()
        return is_wait

    def _usual_phases(self) -> dict[str, float]:
        seconds: dict[str, list[float]] = {}
        for account in self._accounts:
            for phase, of_it, _ in account:
                seconds.setdefault(phase, []).append(of_it)
        few = len(self._accounts) / 2  # a phase that most steps do not have usually takes nothing
        return {phase: median(of_it) for phase, of_it in seconds.items() if len(of_it) > few}

    def _pauses(self, phase: str, longer: float, usual: Mapping[str, float], timers: StepTimers) -> bool:
        """Whether a phase that is long for once stands still, and has not just more to do."""
        if is_pausing(phase):
            return True
        if is_waiting(phase):  # all ranks, at once: who waits for another one is behind the front
            return not is_pipeline(timers.phases, timers.kinds)
        works = [one for one, of_it in usual.items() if accuses(one, timers.kinds) and of_it >= _A_PART * self._usual]
        is_tight = (
            self._scatter() <= _TIGHT * self._usual and self._sorted[-1] - self._usual <= longer / _NOTHING_BETWEEN
        )
        return phase in works and len(works) > 1 and is_tight

    def _noted(self) -> list[Finding]:
        """Take the steps that were long in a row, now that the row is over; return what is found with them."""
        found: list[Finding] = []
        for pause, _, _ in self._row:
            if pause.phase is not None:
                found += self._note(pause, pause.phase)
        return found

    def _note(self, pause: _Long, phase: str) -> list[Finding]:
        key = _key(phase)
        seen = self._seen.setdefault(key, _Seen(key, pause.step))
        seen.add(pause)
        return self._told(seen)

    def _told(self, seen: _Seen) -> list[Finding]:
        before = seen.told
        now = self._described(seen)
        if before is None and not self._is_enough(seen, now):
            return []
        seen.told = now
        return [now] if before is None or before.level != now.level else []

    def _is_enough(self, seen: _Seen, finding: Finding) -> bool:
        if seen.times < _LEAST or finding.slowdown < _WORTH:
            return False
        is_one_rank = len(seen.ranks) == 1 and None not in seen.ranks
        return not is_one_rank or finding.rank is not None or seen.times >= _DECIDED

    def _described(self, seen: _Seen, *, is_over: bool = False) -> Finding:
        # Who was told stays: it would be another finding, and the one before it never over.
        rank = seen.told.rank if seen.told else self._culprit(seen)
        last = seen.steps[-1] if is_over else max(self._step, seen.steps[-1])
        extra_s = seen.cost_s / (last - seen.since + 1)
        usual_s = self._usual or (seen.told.extra_s / seen.told.slowdown if seen.told and seen.told.slowdown else 0.0)
        slowdown = extra_s / usual_s if usual_s > 0 else 0.0
        level: Level = "critical" if slowdown >= _DEFAULTS.critical else "warning"
        return Finding(
            "pause", rank, seen.phase, level, seen.since, last, is_over, slowdown, extra_s, seen.cost_s,
            saved_s=extra_s, times=seen.times, every=seen.every,
        )  # fmt: skip

    def _culprit(self, seen: _Seen) -> int | None:
        """Return the rank that stands still each time, where that is not chance."""
        [(rank, count)] = seen.ranks.most_common(1)
        if rank is None or count < seen.times:
            return None
        # The first pause names a rank; that the others hit the same one by chance has 1/ranks each time.
        return rank if float(self._ranks) ** (1 - count) <= _CHANCE else None

    def _ended(self) -> list[Finding]:
        over = [key for key, seen in self._seen.items() if seen.is_over(self._step)]
        gone = [self._seen.pop(key) for key in over]
        return [self._described(seen, is_over=True) for seen in gone if seen.told is not None]


def _key(phase: str) -> str:
    """Return what pauses are counted under: work of any kind together, for whoever has a turn is at something."""
    return phase if is_pausing(phase) or is_waiting(phase) else DIFFERENT


def _whose_is_longer(timers: StepTimers, than_s: float) -> frozenset[int]:
    """Return the ranks whose own step is longer; where steps are not timed, all of their timers."""
    is_timed = STEP in timers.phases
    own = timers.seconds[:, timers.phases.index(STEP)] if is_timed else np.nansum(timers.seconds, axis=1)
    return frozenset(rank for rank, seconds in zip(timers.ranks, own.tolist(), strict=True) if seconds > than_s)


def _is_alone(rank: int, phase: str, usual: Mapping[str, float], longer: float, timers: StepTimers) -> bool:
    """Whether no other rank stands still: whoever waits for it does so in another phase."""
    if phase not in timers.phases or rank not in timers.ranks:
        return False
    column = timers.seconds[:, timers.phases.index(phase)] - usual.get(phase, 0.0)
    others = np.delete(column, timers.ranks.index(rank))
    return not (others > longer / 2).any()


def _restored(finding: Finding) -> _Seen:
    seen = _Seen(finding.phase, finding.since, times=finding.times, cost_s=finding.cost_s, told=finding)
    every = finding.every or 0
    # `last` is the newest step that was looked at, and the distances tell which one before it had the last pause.
    last = finding.last - (finding.last - finding.since) % every if every else finding.last
    before = min(finding.times - 1, _KEPT - 1) if every else 0  # else nothing is known of their steps
    seen.steps.extend(last - number * every for number in range(before, -1, -1))
    mean = (finding.last - finding.since) / max(finding.times - 1, 1)
    seen.longest = max(every, math.ceil(mean), 1)
    return seen
