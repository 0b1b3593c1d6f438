"""Finds ranks that are slower than their peers in a phase, step after step.

For every phase the lower median over the ranks that do the same work is the usual time; what a rank takes longer,
relative to it, is its slow-down, unless it waited (`blame.py`, `phases.py`). A step in which it is long (beyond half of
what is to be found, or the phase's scatter) is evidence as far as the other ranks are seldom long: a CUSUM (Page, 1954)
of the likelihoods that it is long in most steps, and that it is as often long as they are. So where everybody is long
now and then, by sequence lengths or pauses, much more is needed, whatever the distribution. The same sum the other way
ends a finding.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from otel_ml_service.findings import how_often_long
from otel_ml_service.findings.blame import without_containers
from otel_ml_service.findings.evidence_matrix import EvidenceMatrix
from otel_ml_service.findings.finding import Finding, Level
from otel_ml_service.findings.medians import largest_of_rows
from otel_ml_service.findings.meetings import Meetings
from otel_ml_service.findings.peers import is_pipeline
from otel_ml_service.findings.phases import TimerKind, accusing
from otel_ml_service.findings.scatter import Scatter
from otel_ml_service.findings.silent_ranks import Rhythm, silence
from otel_ml_service.findings.step_timers import StepTimers
from otel_ml_service.findings.thresholds import Thresholds
from otel_ml_service.findings.usual_times import UsualTimes
from otel_ml_service.findings.warm_up import WarmUp
from otel_ml_service.findings.what_if import lateness

__all__ = ["Detector"]

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

_DEFAULTS = Thresholds()

_SMOOTHING = 0.3
"""Of what is smoothed over steps, the part of the newest one: the newest three make two thirds of it."""
_OFTEN = 0.9
"""The share of steps in which a rank that is slow is long."""
_LEAST = 0.9
"""Of a slow-down that is to be found: what is measured scatters around what is so."""
_SURE = 9.0
"""Deviations of changes, of a mean over steps, that chance does not make: 4.5 of the times themselves, of two ranks."""
_SURE_OF_TIMES = 4.5
"""The same of slow-downs themselves: where they vary much from step to step, four in a row are soon long by chance."""
_LEAP = 4.0
"""So many times what a rank was slow by in the steps before: these were chance, and it is slow since this one."""
NO_DEVIATIONS: Mapping[str, float] = {}
_LIKELY = 0.4
"""Part of the evidence that is needed, of a rank that may be found soon: more than one long step, which is a fourth."""
_HARDLY = 0.25
"""Of what a rank was slow by lately: long by less is as quick as the others, though its steps may count as long yet."""
_WORST = 10.0
"""A slow-down beyond it counts as this one: one step in a debugger must not hide the next hundred."""


class Detector:
    """Looks at the steps of one role, axis and attempt, in their order.

    Attributes:
        open: (rank, phase) → what is the matter now.
        slowdowns: each rank's largest slow-down of the newest step, in the order of `ranks`; NaN without timers.
    """

    def __init__(self, thresholds: Thresholds = _DEFAULTS, open_findings: tuple[Finding, ...] = ()) -> None:
        self._thresholds = thresholds
        self._cells, self._scatter = EvidenceMatrix(), Scatter()
        self._usual_times = UsualTimes()
        self._warm_up, self._meetings = WarmUp(), Meetings()
        self._rhythm, self._rhythm_of_phases = Rhythm(), Rhythm()
        self._needed = np.inf
        self._relieved: Flags = np.zeros((0, 0), dtype=bool)
        self._late = np.zeros(0)
        self._saved_before: dict[tuple[int, str], float] = {}
        self._slow_until_it_left = set[tuple[int, str]]()
        known = [((one.rank, one.phase), one) for one in open_findings if one.rank is not None]
        self.open: dict[tuple[int, str], Finding] = dict(known)
        self.slowdowns: Floats = np.zeros(0)
        self._newest = self._before = max((one.last for one in open_findings), default=0)

    @property
    def ranks(self) -> tuple[int, ...]:
        """Every rank that was ever heard, in the order of first hearing."""
        return tuple(self._cells.ranks)

    @property
    def amounts(self) -> tuple[str, ...]:
        """What counts how much ranks are given to do, in the newest step; empty where they say nothing."""
        return self._usual_times.amounts

    @property
    def shares(self) -> Floats:
        """[ranks, amounts]: logarithms of what each rank is given in the newest step, against its peers."""
        return self._usual_times.shares

    def excused(self, rank: int) -> Mapping[str, float]:
        """Return phase → seconds of the newest step that a rank takes longer because it is given more to do."""
        return self._usual_times.excused(self._cells.ranks.get(rank, -1), self._cells.phases)

    def step(self, step: int, timers: StepTimers, deviations: Mapping[str, float] = NO_DEVIATIONS) -> list[Finding]:
        """Take a step; return the findings that began, changed their level, or ended with it.

        Args:
            step: its number.
            timers: of the step.
            deviations: timer → how much it changes for all ranks from step to step, as a share. Of two ranks whose
                times go with their data one is long in each step, and in some in a row: that is not enough.
        """
        with np.errstate(invalid="ignore", divide="ignore"):  # NaN is a timer that a rank does not have
            return self._step(step, timers, deviations)

    def _step(self, step: int, timers: StepTimers, deviations: Mapping[str, float]) -> list[Finding]:
        self._grow(timers)
        self._before, self._newest = self._newest, step
        cells = self._cells
        seconds = cells.spread(timers.ranks, timers.phases, timers.seconds)
        is_heard = ~np.isnan(seconds)
        self._rhythm.hear(step, np.logical_or.reduce(is_heard, axis=1))
        self._rhythm_of_phases.hear(step, np.logical_or.reduce(is_heard, axis=0))
        changes = silence(self.open, step, timers, self._thresholds.silent_steps)
        usual = self._usual(timers, seconds)
        if np.isnan(usual).all():
            self.slowdowns = np.full(len(cells.ranks), np.nan)
            return changes
        extra = self._extra(seconds, usual, timers)
        limits = self._thresholds
        # [ranks, 1]: the longest phase stands for the step; it is `step` where that is timed.
        step_s = np.fmax.reduce(usual, axis=1, keepdims=True)
        least = np.maximum(limits.least_share * step_s, limits.least_s)
        slow = np.minimum(extra / np.maximum(usual, least), _WORST)
        slow[~np.isfinite(slow)] = np.nan  # a phase that takes nobody any time
        # By how much slow-downs change from step to step: who stays slow changes once.
        self._scatter.learn(slow - self._cells.before)
        self._cells.before = np.where(np.isnan(slow), self._cells.before, slow)
        self.slowdowns = largest_of_rows(slow)
        self._excuse_who_warms_up(timers, slow)
        self._weigh(step, slow, extra)
        ended = [*self._ended(), *self._left(step)]
        return [*changes, *ended, *self._changed(step, seconds), *self._begun(step, usual, deviations)]

    def _usual(self, timers: StepTimers, seconds: Floats) -> Floats:
        """Return what each rank usually takes in each phase; who left while it was slow still counts as that."""
        slow = {key for key, one in self.open.items() if one.kind == "slow"}
        self._slow_until_it_left = {key for key in self._slow_until_it_left if np.isnan(seconds[self._place(*key)])}
        places = (self._place(*key) for key in slow | self._slow_until_it_left)
        longest = [place for place in places if min(place) >= 0 and np.isnan(seconds[place])]
        return self._usual_times.of(timers, seconds, self._cells, longest)

    def _extra(self, seconds: Floats, usual: Floats, timers: StepTimers) -> Floats:
        """Return how many seconds longer than its peers each rank worked; NaN where it waited, or has none."""
        phases, kinds = tuple(self._cells.phases), timers.kinds
        # Where all ranks send and receive alike there are no stages: it is a name.
        takes_turns, extra = is_pipeline(phases, kinds) and len(self._usual_times.groups) > 1, seconds - usual
        if not takes_turns:  # a timer that is new has its place in the step, and not behind all that were known
            line = {phase: self._cells.phases[phase] for phase in timers.phases if phase in self._cells.phases}
            extra[:, [*line.values()]] = self._meetings.own_extra(seconds, usual, self._usual_times.groups, line, kinds)
        self._late = self._smoothed_lateness(seconds, phases, kinds) if takes_turns else np.full(len(seconds), np.inf)
        extra[:, [not accuses for accuses in accusing(phases, kinds)]] = np.nan
        return extra

    def _smoothed_lateness(self, seconds: Floats, phases: tuple[str, ...], kinds: Mapping[str, TimerKind]) -> Floats:
        """Return how late each rank comes lately to what all do together."""
        late = lateness(seconds, phases, self._usual_times.groups, kinds)
        before = np.full(len(late), np.nan)
        before[: len(self._late)] = self._late
        smoothed = before + _SMOOTHING * (late - before)
        return np.where(np.isfinite(smoothed), smoothed, late)

    def finish(self) -> list[Finding]:
        """Forget what is open; return it as over: another attempt begins."""
        over = [replace(finding, is_over=True) for finding in self.open.values()]
        self.open.clear()
        return over

    @property
    def cost_s(self) -> float:
        """Seconds a step that the job loses now, where ranks wait for each other: those of the rank that loses most."""
        return max((sum(self.lost(rank).values()) for rank in {rank for rank, _ in self.open}), default=0.0)

    def lost(self, rank: int) -> dict[str, float]:
        """Return the seconds a step that the job loses now by a rank, by phase.

        In a pipeline a rank is no later than its peers where it had waited anyway.
        """
        extra = {phase: one.extra_s for (whose, phase), one in self.open.items() if whose == rank}
        total, row = sum(extra.values()), self._cells.ranks.get(rank, -1)
        late = float(self._late[row]) if 0 <= row < len(self._late) else np.inf
        if not late < total or not total:  # also where nothing is known, and of a rank that is only silent
            return extra
        return {phase: max(late, 0.0) * seconds / total for phase, seconds in extra.items()}

    def slow_in(self, phase: str) -> set[int]:
        """Return the ranks that are slow in a phase."""
        return {rank for (rank, of_it), one in self.open.items() if of_it == phase and one.kind == "slow"}

    def seems_over(self, rank: int, phase: str) -> bool:
        """Whether a rank was not long in a phase in the newest steps: it may be as quick as the others again."""
        place = self._place(rank, phase)
        return min(place) < 0 or bool(self._cells.relief[place] > 0) or not self._cells.is_open[place]

    def suspects(self, phase: str) -> set[int]:
        """Return the ranks that may be found slow in a phase soon."""
        column = self._cells.phases.get(phase)
        if column is None:
            return set()
        likely = self._cells.evidence[:, column] >= _LIKELY * self._needed
        return {rank for rank, is_likely in zip(self._cells.ranks, likely.tolist(), strict=True) if is_likely}

    @property
    def slowest(self) -> Finding | None:
        """The slow rank that costs most."""
        slow = (finding for finding in self.open.values() if finding.kind == "slow")
        return max(slow, key=lambda one: (one.extra_s, -(one.rank or 0)), default=None)

    def _excuse_who_warms_up(self, timers: StepTimers, slow: Floats) -> None:
        """Forget how slow those are who began alone lately; who is known to be slow stays so until it is not."""
        known = self._cells.ranks
        rows = [known[rank] for rank in self._warm_up.step(timers) if rank in known]
        if not rows:
            return
        is_excused = np.zeros(slow.shape, dtype=bool)
        is_excused[rows] = ~self._cells.is_open[rows]
        slow[is_excused], self._cells.evidence[is_excused] = np.nan, 0.0

    def _grow(self, timers: StepTimers) -> None:
        cells = self._cells
        if not cells.grow(timers.ranks, timers.phases):
            return
        self._scatter.grow(len(cells.phases))
        for (rank, phase), finding in self.open.items():  # of before a restart of the service, or known anyway
            place = cells.ranks.get(rank, -1), cells.phases.get(phase, -1)
            if min(place) >= 0 and not cells.is_open[place]:
                cells.is_open[place] = True
                self._meetings.know(cells.is_open.shape, place, finding.extra_s)
                cells.since[place], cells.seconds[place] = finding.since, finding.cost_s
                cells.recent[place], cells.extra[place] = finding.slowdown, finding.extra_s
                cells.counted[place] = _steps_of(finding)
                cells.total[place] = finding.slowdown * cells.counted[place]

    def _weigh(self, step: int, slow: Floats, extra: Floats) -> None:
        cells = self._cells
        seen = ~np.isnan(slow)
        high = slow > np.maximum(self._thresholds.warning / 2, self._scatter.of_phases)
        begins = high & (cells.evidence == 0) & ~cells.is_open
        # What chance had begun is not a part of it: the rank became slow in this step.
        leaps = high & (cells.evidence > 0) & ~cells.is_open & (slow > _LEAP * cells.recent)
        cells.begin(begins | leaps, step)
        cells.recent[begins], cells.extra[begins] = slow[begins], extra[begins]
        if self.open or begins.any() or cells.evidence.any():
            self._add_up(slow, extra, seen, high)
        # Counted after the step was weighed: no step tells how usual it is itself.
        how_often_long.count(cells, high, seen & ~cells.is_open)
        cells.was_high = np.where(seen, high, cells.was_high)
        how_often_long.add_up(cells, slow)

    def _add_up(self, slow: Floats, extra: Floats, seen: Flags, high: Flags) -> None:
        """Add the step to what speaks for and against each rank; without any, that begins anew with the next."""
        cells, limits = self._cells, self._thresholds
        seldom = how_often_long.seldom(cells, _OFTEN - 0.05)
        self._needed = np.log(max(int(seen.sum()), 1) / limits.wrongly)
        # However seldom others are long: no step is more evidence than a fourth of what is needed.
        least = self._needed / limits.steps
        # How much likelier a long step, and one that is not, is of a slow rank than of one that is as the others.
        against, for_it = np.log(_OFTEN / seldom), np.log((1 - _OFTEN) / (1 - seldom))
        high = high & ~(cells.is_open & (slow < _HARDLY * cells.recent))
        gain = np.where(seen, np.where(high, np.minimum(against, least), for_it), 0.0)
        # At most what is needed, so that whoever is not told for another reason is soon no suspect anymore.
        cells.evidence = np.minimum(np.maximum(cells.evidence + gain, 0.0), self._needed)
        if self.open:
            relieved = seen & cells.is_open & (cells.relief == 0) & (gain < 0)
            cells.until[relieved] = self._before
            cells.seconds_before[relieved] = cells.seconds[relieved]
            cells.total_before[relieved] = cells.total[relieved]
            cells.counted_before[relieved] = cells.counted[relieved]
            self._saved_before |= {key: self.open[key].saved_s for key in self._names(relieved) if key in self.open}
            relief = np.maximum(cells.relief - gain, 0.0)
            cells.relief = np.where(seen & cells.is_open, relief, cells.relief)
            # Four steps that are not long in a row; 1e-9 for how the sums are rounded.
            self._relieved = cells.is_open & (cells.relief >= -limits.steps * for_it * (1 - 1e-9))
        cells.recent += np.where(seen, _SMOOTHING * (slow - cells.recent), 0.0)
        cells.extra += np.where(seen, _SMOOTHING * (extra - cells.extra), 0.0)
        cells.seconds += np.where(seen, np.maximum(extra, 0.0), 0.0)
        cells.total += np.where(seen, np.maximum(slow, 0.0), 0.0)
        cells.counted += seen

    def _ended(self) -> list[Finding]:
        if not self.open:
            return []
        cells, found = self._cells, list[Finding]()
        for rank, phase in self._names(self._relieved):
            place = self._place(rank, phase)
            cells.is_open[place], cells.evidence[place] = False, 0.0
            finding = self.open.pop((rank, phase))
            last = max(int(cells.until[place]), finding.since)
            saved_s = self._saved_before.pop((rank, phase), finding.saved_s)
            over = replace(finding, last=last, cost_s=float(cells.seconds_before[place]), saved_s=saved_s)
            found.append(self._over(over, float(cells.total_before[place]), float(cells.counted_before[place])))
        cells.relief[self._relieved] = 0.0
        return found

    def _left(self, step: int) -> list[Finding]:
        """End what is the matter with ranks, and in phases, that are heard no more: it lasted up to their last step."""
        found = []
        gone = [key for key, one in self.open.items() if one.kind == "slow" and self._has_left(*key, step)]
        for key in gone:
            one, place = self.open.pop(key), self._place(*key)
            steps = _steps_of(one)
            total = one.slowdown * steps  # of before a restart of the service
            if min(place) >= 0:
                total, steps = float(self._cells.total[place]), float(self._cells.counted[place])
                self._cells.is_open[place], self._cells.evidence[place] = False, 0.0
                self._slow_until_it_left.add(key)
            self._saved_before.pop(key, None)
            found.append(self._over(one, total, steps))
        return found

    def _has_left(self, rank: int, phase: str, step: int) -> bool:
        row, column = self._place(rank, phase)
        return self._rhythm.has_left(row, step) or self._rhythm_of_phases.has_left(column, step)

    def _over(self, finding: Finding, total: float, steps: float) -> Finding:
        """Return a finding that is over as it was on average; `total` are its slow-downs in so many steps, added."""
        level: Level = "critical" if total / steps >= self._thresholds.critical else "warning"
        return replace(finding, level=level, is_over=True, slowdown=total / steps, extra_s=finding.cost_s / steps)

    def _changed(self, step: int, seconds: Floats) -> list[Finding]:
        """Bring up to date what is the matter, as far as its ranks, and its phases, were heard in this step."""
        found, is_heard = [], ~np.isnan(seconds)
        for (rank, phase), before in list(self.open.items()):
            place = self._place(rank, phase)
            if before.kind == "silent" or min(place) < 0:
                continue
            if not (is_heard[place[0]].any() and is_heard[:, place[1]].any()):
                continue
            now = self._described(before, step, place)
            self.open[rank, phase] = now
            if now.level != before.level:
                found.append(now)
        return found

    def _begun(self, step: int, usual: Floats, deviations: Mapping[str, float]) -> list[Finding]:
        cells = self._cells
        suspects = cells.evidence >= self._needed * (1 - 1e-9)
        if not suspects.any():
            return []
        steps = np.maximum(cells.counted, 1.0)
        scatter = np.array([deviations.get(phase, 0.0) for phase in cells.phases])
        beside = self._usual_times.deviations
        scatter[: len(beside)] = np.maximum(scatter[: len(beside)], beside)
        # By how much the mean over so many steps may be off by itself.
        by_chance = np.maximum(_SURE * scatter, _SURE_OF_TIMES * self._scatter.seen) / np.sqrt(steps)
        by_chance += how_often_long.beside(cells, suspects & ~cells.is_open)
        least = np.maximum(_LEAST * self._thresholds.warning, by_chance)
        suspects &= cells.is_open | (cells.total >= least * steps)
        likely = cells.evidence >= _LIKELY * self._needed
        begun = without_containers(suspects, likely, cells.extra, usual) & ~cells.is_open
        found = []
        for rank, phase in self._names(begun):
            place = self._place(rank, phase)
            cells.is_open[place], cells.relief[place] = True, 0.0
            how_often_long.forget(cells, place)
            blank = Finding("slow", rank, phase, "warning", int(cells.since[place]), step)
            self.open[rank, phase] = self._described(blank, step, place)
            found.append(self.open[rank, phase])
        return found

    def _described(self, finding: Finding, step: int, place: tuple[int, int]) -> Finding:
        cells, limits = self._cells, self._thresholds
        slowdown = float(cells.recent[place])
        # Below this it is a warning again: a rank at the limit would be told in every other step.
        limit = limits.critical * (limits.release if finding.level == "critical" else 1.0)
        level: Level = "critical" if slowdown >= limit else "warning"
        return replace(
            finding,
            level=level,
            last=step,
            slowdown=slowdown,
            extra_s=max(float(cells.extra[place]), 0.0),
            cost_s=float(cells.seconds[place]),
        )

    def _place(self, rank: int, phase: str) -> tuple[int, int]:
        return self._cells.ranks.get(rank, -1), self._cells.phases.get(phase, -1)

    def _names(self, chosen: npt.NDArray[np.bool_]) -> list[tuple[int, str]]:
        if not chosen.any():
            return []
        ranks, phases = list(self._cells.ranks), list(self._cells.phases)
        return [(ranks[row], phases[column]) for row, column in np.argwhere(chosen).tolist()]


def _steps_of(finding: Finding) -> float:
    """Return how many steps a finding of before a restart of the service is about, as far as their numbers tell."""
    return float(finding.last - finding.since + 1)
