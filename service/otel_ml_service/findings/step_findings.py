"""All that is found in the steps of one role, axis and attempt: slow ranks, loads, shapes of the data, pauses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from otel_ml_service.findings.detector import Detector, Floats
from otel_ml_service.findings.finding import Finding, Kind, mean_with, rank_number, role_of_place
from otel_ml_service.findings.frontier import Exposed, Line, exposed, line_of
from otel_ml_service.findings.loads import Loads
from otel_ml_service.findings.pauses import Pauses
from otel_ml_service.findings.peers import is_pipeline
from otel_ml_service.findings.phases import STEP, UNTIMED, WHOLE_PIPELINE, TimerKind, accuses, meeting
from otel_ml_service.findings.places import Places
from otel_ml_service.findings.shape import Shape
from otel_ml_service.findings.slow_role import Beside, SlowRole
from otel_ml_service.findings.stages import Stages, working_phases
from otel_ml_service.findings.step_timers import StepTimers
from otel_ml_service.findings.what_if import saved_after_meeting, saved_without
from otel_ml_service.findings.who_waits import WhoWaits

__all__ = ["StepFindings"]

_PLAYED = 8
"""Findings of which it is worked out in each step what it would take without them; the costliest ones."""


class StepFindings:
    """Looks at steps in their order.

    Attributes:
        open: subject → what is the matter now.
        of_role: whether the role is slow as a whole.
        account: where the time of the newest step goes (`frontier.py`); empty where there is no account.
    """

    def __init__(self, open_findings: Sequence[Finding] = ()) -> None:
        of_role = [one for one in open_findings if one.kind == "slow" and role_of_place(one.where)]
        of_places = [one for one in open_findings if one.where and one.kind == "slow" and one not in of_role]
        alone = [one for one in open_findings if one.rank is not None and one.kind != "pause"]
        # The detector knows of ranks alone: each slow rank of a place has a finding of its own there.
        of_ranks = [*alone, *(replace(one, rank=rank, where="", ranks=()) for one in of_places for rank in one.ranks)]
        self._detector = Detector(open_findings=tuple(of_ranks))
        self._places = Places(of_places, alone)
        self._stages = Stages([one for one in open_findings if one.kind == "stage"])
        self._loads = Loads(next((one for one in open_findings if one.kind == "load"), None))
        self._shape = Shape(next((one for one in open_findings if one.kind == "shape"), None))
        self._who_waits = WhoWaits()
        self.of_role = SlowRole(of_role)
        self._pauses = Pauses([one for one in open_findings if one.kind == "pause"])
        self.account: list[Exposed] = []

    def step(
        self, step: int, timers: StepTimers, parents: Mapping[str, str], beside: Beside | None = None
    ) -> list[Finding]:
        """Take a step; return the findings that began, changed their level, or ended with it.

        Args:
            step: its number.
            timers: of the step.
            parents: timer → the one that it is inside of.
            beside: the other roles of the run; None where there are none.
        """
        of_role = [] if beside is None else self.of_role.step(step, timers, parents, beside)
        # The account has all timers; for whoever accuses, those around waiting are taken for waiting below.
        self.account = exposed(timers, parents)
        self._who_waits.add(step, timers)
        pauses = self._pauses.step(step, self.account, timers)
        timers = _without_containers(timers, parents)
        of_data = self._shape.step(step, timers, parents)
        of_stages = self._stages.step(step, timers, parents, self._shape.explained_s)
        paused = self._pauses.phase_of(step)
        # While a phase pauses, who is long in it accuses nobody: it has a turn, or all of them do.
        working = timers if paused is None else timers._replace(kinds={**timers.kinds, paused: "wait"})
        of_ranks = self._detector.step(step, working, self._shape.deviations)
        told = self._places.step(step, of_ranks, self._detector, timers)
        # What a step would take without a rank is worked out in the step with which it is told.
        self._work_out(timers, parents)
        of_loads = self._look_at_loads(step, timers, parents)
        # As it stands after that: `told` was made before.
        named = (one if one.is_over else self.open.get(one.subject, one) for one in told)
        return [*named, *of_role, *of_stages, *of_loads, *of_data, *pauses]

    def take_last(self) -> list[Finding]:
        """Take what waits for another step to be known: none comes. Return the findings that it makes."""
        return self._pauses.take_last()

    def finish(self) -> list[Finding]:
        """Forget what is open; return it as over: another attempt begins."""
        of_ranks = self._places.finish(self._detector.finish())
        of_all = (self.of_role, self._stages, self._loads, self._shape, self._pauses)
        return [*of_ranks, *(one for found in of_all for one in found.finish())]

    def __iter__(self) -> Iterator[Finding]:
        """Yield what is the matter now."""
        for key, one in self._detector.open.items():
            if not self._places.hides(key):
                yield one
        yield from (place.told for place in self._places.open.values())
        yield from self.of_role.open.values()
        yield from self._stages.open.values()
        yield from (one for one in (self._loads.open, self._shape.open) if one is not None)
        yield from self._pauses.open

    @property
    def open(self) -> dict[tuple[str, str, Kind], Finding]:
        """What is the matter now, by subject."""
        return {one.subject: one for one in self}

    @property
    def slow_ranks(self) -> list[Finding]:
        """What is the matter with ranks now, also with those that are told with their place."""
        return list(self._detector.open.values())

    @property
    def slowest(self) -> Finding | None:
        """The slow rank that costs most."""
        return self._detector.slowest

    @property
    def cost_s(self) -> float:
        """Seconds a step that the job loses now by the rank that costs most."""
        return self._detector.cost_s

    @property
    def ranks(self) -> tuple[int, ...]:
        """Every rank that was ever heard, in the order of first hearing."""
        return self._detector.ranks

    @property
    def slowdowns(self) -> Floats:
        """Each rank's largest slow-down of the newest step, in the order of `ranks`."""
        return self._detector.slowdowns

    def know(self, finding: Finding) -> None:
        """Go on with a finding about a rank as it is given here."""
        if finding.rank is not None and finding.kind != "pause":
            self._detector.open[finding.rank, finding.phase] = finding

    def _work_out(self, timers: StepTimers, parents: Mapping[str, str]) -> None:
        """Note how much shorter the step would have been without each slow rank, and each slow place."""
        heard = set(timers.ranks)
        slow = [one for one in self._detector.open.values() if one.kind == "slow" and one.rank in heard]
        slow = [one for one in slow if one.phase in {*timers.phases, STEP, UNTIMED}]
        if not slow:
            return
        costliest = sorted(slow, key=lambda one: -one.extra_s)[:_PLAYED]
        line = None if is_pipeline(timers.phases, timers.kinds) else line_of(timers, parents)
        others_wait_by_phase: dict[str, dict[int, bool]] = {}
        for one in costliest:
            rank = rank_number(one)
            now = self._with_price(one, self._saved([rank], one.phase, timers, line))
            self.know(now)
            others_wait_by_phase.setdefault(one.phase, {})[rank] = now.others_wait
        for (where, phase), place in self._places.open.items():
            if heard.isdisjoint(place.slow):
                continue
            saved = self._saved(sorted(place.slow), phase, timers, line)
            seems_over = all(self._detector.seems_over(rank, phase) for rank in place.slow)
            wait = [others for rank, others in others_wait_by_phase.get(phase, {}).items() if rank in place.slow]
            told = replace(place.told, others_wait=any(wait) if wait else place.told.others_wait)
            told = replace(told, saved_s=mean_with(told, saved) if told.others_wait else 0.0)
            self._places.save(where, phase, told, seems_over=seems_over)

    def _with_price(self, one: Finding, saved: float) -> Finding:
        """Return a finding of a rank with what a step is shorter without it: nothing where the others go on."""
        rank, steps = rank_number(one), one.last - one.since + 1
        known = None
        if not self._detector.seems_over(rank, one.phase):
            known = self._who_waits.others_wait(rank, one.since, one.cost_s / steps)
        wait = one.others_wait if known is None else known
        return replace(one, others_wait=wait, saved_s=mean_with(one, saved) if wait else 0.0)

    def _look_at_loads(self, step: int, timers: StepTimers, parents: Mapping[str, str]) -> list[Finding]:
        """Look at who has more to do, where phases are a line: elsewhere nobody knows who waits for whom."""
        line = line_of(timers, parents) if self._loads.open is not None or timers.amounts else None
        if line is None:
            return []
        phases = [timers.phases[column] for column in working_phases(timers, parents)]
        return self._loads.step(
            step,
            self._detector,
            phases,
            sum(phase.seconds for phase in self.account),
            lambda ranks, phase: self._saved(ranks, phase, timers, line),
        )

    def _saved(self, ranks: Sequence[int], phase: str, timers: StepTimers, line: Line | None) -> float:
        if line is None:
            return max((self._detector.lost(rank).get(phase, 0.0) for rank in ranks), default=0.0)
        in_line = UNTIMED if phase == STEP else phase
        rows = [timers.ranks.index(rank) for rank in ranks if rank in timers.ranks]
        if not rows or in_line not in line.phases:
            return 0.0
        column, together = line.phases.index(in_line), meeting(line.phases, timers.kinds)
        saved = saved_without(line.seconds, rows, column)
        saved = max(saved, saved_after_meeting(line.seconds, rows, column, together))
        return saved if np.isfinite(saved) else 0.0


def _without_containers(timers: StepTimers, parents: Mapping[str, str]) -> StepTimers:
    """Return the timers of a pipeline so that those around waiting for another stage accuse nobody.

    All ranks of a replica are long in these, whichever of them is slow.
    """
    if not is_pipeline(timers.phases, timers.kinds):
        return timers
    inside = (phase for phase in timers.phases if phase in parents and not accuses(phase, timers.kinds))
    around: dict[str, TimerKind] = {WHOLE_PIPELINE: "wait", **{parents[phase]: "wait" for phase in inside}}
    return timers._replace(kinds={**around, **timers.kinds})
