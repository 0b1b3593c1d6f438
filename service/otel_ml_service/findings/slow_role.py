"""A role that is slow as a whole: all of its ranks work longer than they did before, and no other role does.

Ranks of a role are compared with each other, so nobody is found where all of them become slower at once. Here each is
compared with its own former steps, in a run of several roles alone: whether it is the role or what it works at, other
roles tell. A role that waits is not slow. What it does may contain its waiting for another role, whatever its timers
are called, so nothing is told while anything but declared waiting of another role takes longer, too, or is not known.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from otel_ml_service.findings.change_points import RECENT, change_points
from otel_ml_service.findings.finding import Finding, Level, role_place
from otel_ml_service.findings.frontier import own_time
from otel_ml_service.findings.medians import low_median
from otel_ml_service.findings.nesting import BESIDE
from otel_ml_service.findings.phases import (
    STEP,
    UNTIMED,
    WHOLE_PIPELINE,
    TimerKind,
    accuses,
    is_pausing,
    is_routed,
)
from otel_ml_service.findings.step_timers import StepTimers
from otel_ml_service.findings.thresholds import Thresholds

__all__ = ["Beside", "SlowRole"]

Floats = npt.NDArray[np.float64]

_REMEMBERED, _REFERENCE = 96, 32
"""Steps that are kept, and those before a change that its ranks are compared with."""
_LOOKS_EVERY = 4
"""Steps; a change shows in the twelve newest ones."""
_MOST_RANKS = 256
"""Ranks of a role that are looked at, evenly over all of them."""
_AROUND, _AT_ONCE = 6, 0.75
"""Steps before and after a change, between which this part of it happens: else it came by and by."""
_NEARLY_ALL = 0.8
"""Of the ranks of the role."""
_LEAST_ALIKE, _MOST_ALIKE = 0.5, 2.0
"""Times the share of the rank in the middle: as much longer as the others."""
_PART = 0.5
"""Of what the role takes longer: what somebody else takes longer by as much could be the reason."""
_APART = 0.2
"""Of the same: one rank that is longer in another phase by as much more than the others is what they may wait for."""
_NOTICED, _PART_OF_SHARE = 0.05, 0.25
"""By which another role takes longer, too: as a share of its time, and of the share of the role in question."""
_FEW, _FEW_BEFORE = 4, 8
"""Steps of another role since then, and before, that tell whether it takes longer, too."""
_SMOOTHING = 0.3
_OVER = 4
"""Steps in a row in which it is as quick as before."""

_LIMITS = Thresholds()


class Beside(NamedTuple):
    """What else is known where a role closes a step.

    Attributes:
        role: whose step it is.
        time_ns: of the step.
        others: of each other role of the run, the steps of each of its axes.
    """

    role: str
    time_ns: int
    others: Sequence[Sequence[SlowRole]]

    def may_be_why(self, rise: _Rise) -> bool:
        """Whether another role takes longer since then, too, or one is of which nothing is known."""
        for axes in self.others:
            takes_longer = [one.takes_longer(rise) for one in axes]
            if any(takes_longer) or all(one is None for one in takes_longer):
                return True
        return False


class _Row(NamedTuple):
    """A step: `own` [ranks, phases], seconds that each phase takes alone; `given`, of the rank in the middle."""

    step: int
    time_ns: int
    own: Floats
    middle: Floats
    given: Floats
    ended_ns: tuple[int, ...]


class _Rise(NamedTuple):
    """A phase that takes longer from a step on.

    Attributes:
        before, after: rows without it, and those with it.
        usual_s, by_s: of the rank in the middle.
        ranks: those that take longer by the same share.
    """

    phase: str
    before: Sequence[_Row]
    after: Sequence[_Row]
    usual_s: float
    by_s: float
    ranks: tuple[int, ...]

    @property
    def share(self) -> float:
        return self.by_s / self.usual_s


class SlowRole:
    """Looks at the steps of one role, axis and attempt, in their order.

    Attributes:
        open: phase → what is the matter now.
    """

    def __init__(self, open_findings: Sequence[Finding] = ()) -> None:
        self.open = {one.phase: one for one in open_findings}
        self._rows: deque[_Row] = deque(maxlen=_REMEMBERED)
        self._ranks: tuple[int, ...] = ()
        self._phases: dict[str, int] = {}
        self._kinds: Mapping[str, TimerKind] = {}
        self._amounts: tuple[str, ...] = ()
        self._has_nesting = False
        self._quick: dict[str, int] = {}
        self._steps = 0

    def step(self, step: int, timers: StepTimers, parents: Mapping[str, str], beside: Beside) -> list[Finding]:
        """Take a step; return what began, changed its level, or ended with it.

        Args:
            step: its number.
            timers: of the step.
            parents: timer → the one that it is inside of, as far as spans show it.
            beside: whose step it is, and the other roles.
        """
        self._add(step, timers, parents, beside.time_ns)
        changed = [one for phase in list(self.open) if (one := self._followed(phase)) is not None]
        # Of a role alone nobody could tell whether it or what it works at is slower.
        if not beside.others or len(self._ranks) < 2 or self._steps % _LOOKS_EVERY:
            return changed
        for phase in self._longer():
            rise = self._rise(phase)
            if rise is not None and self._is_its_own(rise) and not beside.may_be_why(rise):
                self.open[phase] = self._begun(rise, beside.role)
                changed.append(self.open[phase])
        return changed

    def finish(self) -> list[Finding]:
        """Forget what is open; return it as over: another attempt begins."""
        over = [replace(one, is_over=True) for one in self.open.values()]
        self.open.clear()
        return over

    def takes_longer(self, rise: _Rise) -> bool | None:
        """Whether this role takes longer, too, since another one does; None where that is not known.

        Waiting that is declared, or named so, does not count: who waits follows.
        """
        since_ns = rise.after[0].time_ns
        before = [row for row in self._rows if row.time_ns < since_ns][-_REFERENCE:]
        after = [row for row in self._rows if row.time_ns >= since_ns]
        others = [column for phase, column in self._phases.items() if not self._waits(phase)]
        if len(before) < _FEW_BEFORE or len(after) < _FEW or not others:
            return None
        old, new = self._middle(before), self._middle(after)
        # Short phases are measured against this, as those of ranks are.
        usual = np.maximum(old, np.maximum(_LIMITS.least_share * old.sum(), _LIMITS.least_s))
        least = max(_NOTICED, _PART_OF_SHARE * rise.share)
        return bool(((new - old)[others] > least * usual[others]).any())

    def _add(self, step: int, timers: StepTimers, parents: Mapping[str, str], time_ns: int) -> None:
        self._steps += 1
        chosen = slice(None, None, math.ceil(len(timers.ranks) / _MOST_RANKS) or 1)
        if (timers.ranks[chosen], timers.amounts) != (self._ranks, self._amounts):  # what is left is spread over others
            self._ranks, self._amounts, self._phases = timers.ranks[chosen], timers.amounts, {}
            self._rows.clear()
        self._kinds, self._has_nesting = timers.kinds, bool(parents)
        timed = [
            (column, phase)
            for column, phase in enumerate(timers.phases)
            if phase != UNTIMED and parents.get(phase) != BESIDE
        ]
        seconds = np.nan_to_num(timers.seconds[chosen][:, [column for column, _ in timed]])
        names = [phase for _, phase in timed]
        # `step` without all that is inside of it is what no timer has.
        places = [self._phases.setdefault(UNTIMED if name == STEP else name, len(self._phases)) for name in names]
        own = np.zeros((len(self._ranks), len(self._phases)))
        own[:, places] = np.maximum(own_time(seconds, names, parents), 0.0)
        middle = low_median(own) if len(own) else np.zeros(len(self._phases))
        given = low_median(timers.given[chosen]) if self._amounts else np.zeros(0)
        self._rows.append(_Row(step, time_ns, own, middle, given, timers.ended_ns[chosen]))

    def _works(self, phase: str) -> bool:
        if self._kinds.get(phase) is not None:
            return accuses(phase, self._kinds)
        return accuses(phase) and not is_pausing(phase) and phase not in {UNTIMED, WHOLE_PIPELINE}

    def _waits(self, phase: str) -> bool:
        return not accuses(phase, self._kinds) and (self._kinds.get(phase) is not None or not is_routed(phase))

    def _middle(self, rows: Sequence[_Row]) -> Floats:
        """Return the seconds of each phase, of the rank in the middle, and of the step in the middle."""
        return np.asarray(np.median([_wide(row.middle, len(self._phases)) for row in rows], axis=0))

    def _of_ranks(self, rows: Sequence[_Row]) -> Floats:
        """Return the seconds [ranks, phases] of the step in the middle."""
        return np.asarray(np.median([_wide(row.own, len(self._phases)) for row in rows], axis=0))

    def _longer(self) -> list[str]:
        """Return the phases of work that may take longer than before: most steps are through with this."""
        rows = list(self._rows)
        if len(rows) < 2 * RECENT:
            return []
        old, new = self._middle(rows[:-RECENT]), self._middle(rows[-RECENT:])
        least = (1 + _LIMITS.warning) * np.maximum(old, _LIMITS.least_s)
        return [
            phase
            for phase, column in self._phases.items()
            if phase not in self.open and new[column] > least[column] and self._works(phase)
        ]

    def _rise(self, phase: str) -> _Rise | None:
        """Return since when a phase takes longer on nearly all ranks, at once and by the same share; None elsewhere."""
        rows, column = list(self._rows), self._phases[phase]
        series = [float(_wide(row.middle, len(self._phases))[column]) for row in rows]
        # The newest one: since then the phase takes what it takes now.
        change = next(reversed(change_points([row.step for row in rows], series).changes), None)
        if change is None or change.by <= 0:
            return None
        at = next(place for place, row in enumerate(rows) if row.step == change.step)
        before, after = rows[max(at - _REFERENCE, 0) : at], rows[at:]
        old, new = self._of_ranks(before), self._of_ranks(after)
        usual_s, by_s = float(np.median(old[:, column])), float(np.median((new - old)[:, column]))
        least_s = max(usual_s, _LIMITS.least_share * float(np.median(old.sum(axis=1))), _LIMITS.least_s)
        around = (np.median(series[max(at - _AROUND, 0) : at]), np.median(series[at : at + _AROUND]))
        is_at_once = around[1] - around[0] >= _AT_ONCE * by_s
        if usual_s <= 0 or by_s < _LIMITS.warning * least_s or not is_at_once:
            return None
        shares = (new - old)[:, column] / np.maximum(old[:, column], 1e-9)
        alike = (shares >= _LEAST_ALIKE * by_s / usual_s) & (shares <= _MOST_ALIKE * by_s / usual_s)
        if alike.sum() < _NEARLY_ALL * len(alike):
            return None
        ranks = tuple(rank for rank, is_alike in zip(self._ranks, alike.tolist(), strict=True) if is_alike)
        return _Rise(phase, before, after, usual_s, by_s, ranks)

    def _is_its_own(self, rise: _Rise) -> bool:
        """Whether the ranks work longer: not for more that they are given, for one of them, or for what they wait."""
        given, of_now = (np.median([row.given for row in rows], axis=0) for rows in (rise.before, rise.after))
        if (of_now > (1 + _PART * rise.share) * given).any():
            return False
        more = self._of_ranks(rise.after) - self._of_ranks(rise.before)
        column = self._phases[rise.phase]
        if not self._has_nesting:  # the phase may be around what does not work
            idle = [place for phase, place in self._phases.items() if not self._works(phase)]
            if rise.by_s - float(np.median(np.maximum(more[:, idle], 0.0).sum(axis=1))) < _PART * rise.by_s:
                return False
        others = [place for phase, place in self._phases.items() if place != column and not self._waits(phase)]
        apart = more[:, others] - np.median(more[:, others], axis=0)
        if (apart >= _APART * rise.by_s).any():  # one is longer in something else, and the rest may wait for it here
            return False
        # The ranks that do not take longer in it must not do so in something else, nor end their steps later: the
        # others may wait for them. Where nobody knows when they end (NaN), that counts against it.
        rest = [row for row, rank in enumerate(self._ranks) if rank not in rise.ranks]
        elsewhere = np.delete(more, column, axis=1).sum(axis=1)[rest]
        later = _later(rise.after)[rest] - _later(rise.before)[rest]
        return not ((elsewhere >= _PART * rise.by_s) | ~(later < _PART * rise.by_s)).any()

    def _begun(self, rise: _Rise, role: str) -> Finding:
        column = self._phases[rise.phase]
        lost = [max(float(_wide(row.middle, column + 1)[column]) - rise.usual_s, 0.0) for row in rise.after]
        blank = Finding(
            "slow", None, rise.phase, "warning", rise.after[0].step, rise.after[-1].step,
            slowdown=rise.share, extra_s=rise.by_s, cost_s=sum(lost), saved_s=rise.by_s,
            where=role_place(role), ranks=rise.ranks,
        )  # fmt: skip
        return replace(blank, level=_level(blank))

    def _followed(self, phase: str) -> Finding | None:
        """Take the newest step of what is open; return it where it is told: over, or with another level."""
        before, row, column = self.open[phase], self._rows[-1], self._phases.get(phase, -1)
        # What it took before it was slow: `slowdown` is `extra_s` as a share of that.
        usual_s = before.extra_s / before.slowdown if before.slowdown > 0 else 0.0
        now_s = float(_wide(row.middle, len(self._phases))[column]) if column >= 0 else 0.0
        # Half of what is found: at the limit itself it would end and begin anew.
        if now_s <= usual_s * (1 + _LIMITS.warning / 2):
            self._quick[phase] = self._quick.get(phase, 0) + 1
            if self._quick[phase] < _OVER:
                return None
            del self.open[phase], self._quick[phase]
            return replace(before, is_over=True)
        self._quick.pop(phase, None)
        extra_s = before.extra_s + _SMOOTHING * (now_s - usual_s - before.extra_s)
        now = replace(
            before, last=row.step, cost_s=before.cost_s + now_s - usual_s, extra_s=extra_s, saved_s=extra_s,
            slowdown=extra_s / usual_s if usual_s > 0 else before.slowdown,
        )  # fmt: skip
        self.open[phase] = replace(now, level=_level(now))
        return self.open[phase] if self.open[phase].level != before.level else None


def _level(finding: Finding) -> Level:
    limit = _LIMITS.critical * (_LIMITS.release if finding.level == "critical" else 1.0)
    return "critical" if finding.slowdown >= limit else "warning"


def _wide(values: Floats, columns: int) -> Floats:
    """Return values of a step in which not all phases were known with 0 for the others."""
    missing = columns - values.shape[-1]
    return values if missing <= 0 else np.concatenate([values, np.zeros((*values.shape[:-1], missing))], axis=-1)


def _later(rows: Sequence[_Row]) -> Floats:
    """Return how long each rank needed from the end of a step to that of the next one, seconds; NaN where unknown."""
    ended = [row.ended_ns for row in rows]
    if len(rows) < 2 or not all(ended):
        return np.full(len(rows[0].own), np.nan)
    return np.asarray(np.median(np.diff(np.array(ended, dtype=np.int64), axis=0), axis=0) / 1e9)
