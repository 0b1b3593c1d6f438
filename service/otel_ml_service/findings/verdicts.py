"""All that is found in the steps of one role, axis and attempt: slow and silent ranks, stages, shapes of the data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from otel_ml_service.findings.detector import Detector, Floats, StepTimers
from otel_ml_service.findings.finding import Finding
from otel_ml_service.findings.frontier import Line, line_of
from otel_ml_service.findings.peers import is_pipeline
from otel_ml_service.findings.phases import STEP, UNTIMED, WHOLE_PIPELINE, TimerKind, accuses
from otel_ml_service.findings.shape import Shape
from otel_ml_service.findings.stages import Stages
from otel_ml_service.findings.what_if import saved_without

__all__ = ["Verdicts"]

_PLAYED = 8
"""Findings of which it is worked out in each step what it would take without them; the costliest ones."""
_SMOOTHING = 0.3


class Verdicts:
    """Looks at steps in their order.

    Attributes:
        open: subject → what is the matter now.
    """

    def __init__(self, open_findings: Sequence[Finding] = ()) -> None:
        of_ranks = tuple(one for one in open_findings if one.rank is not None)
        self._detector = Detector(open_findings=of_ranks)
        self._stages = Stages([one for one in open_findings if one.kind == "stage"])
        self._shape = Shape(next((one for one in open_findings if one.kind == "shape"), None))

    def step(self, step: int, timers: StepTimers, parents: Mapping[str, str]) -> list[Finding]:
        """Take a step; return the findings that began, changed their level, or ended with it.

        Args:
            step: its number.
            timers: of the step.
            parents: timer → the one that it is inside of.
        """
        timers = _without_containers(timers, parents)
        of_data = self._shape.step(step, timers, parents)
        of_stages = self._stages.step(step, timers, parents, self._shape.explained_s)
        of_ranks = self._detector.step(step, timers, self._shape.deviations)
        self._work_out(timers, parents)
        return [*(one if one.is_over else self.open.get(one.subject, one) for one in of_ranks), *of_stages, *of_data]

    def finish(self) -> list[Finding]:
        """Forget what is open; return it as over: another attempt begins."""
        return [*self._detector.finish(), *self._stages.finish(), *self._shape.finish()]

    def __iter__(self) -> Iterator[Finding]:
        """Yield what is the matter now."""
        yield from self._detector.open.values()
        yield from self._stages.open.values()
        if self._shape.open is not None:
            yield self._shape.open

    @property
    def open(self) -> dict[tuple[str, str], Finding]:
        """What is the matter now, by subject."""
        return {one.subject: one for one in self}

    @property
    def slow_ranks(self) -> list[Finding]:
        """What is the matter with ranks now."""
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
        if finding.rank is not None:
            self._detector.open[finding.rank, finding.phase] = finding

    def _work_out(self, timers: StepTimers, parents: Mapping[str, str]) -> None:
        """Note how much shorter the step would have been without each slow rank."""
        slow = [one for one in self._detector.open.values() if one.kind == "slow"]
        if not slow:
            return
        costliest = sorted(slow, key=lambda one: -one.extra_s)[:_PLAYED]
        line = None if is_pipeline(timers.phases, timers.kinds) else line_of(timers, parents)
        for one in costliest:
            saved = self._saved(one, timers, line)
            weight = _SMOOTHING if one.saved_s else 1.0
            self.know(replace(one, saved_s=one.saved_s + weight * (saved - one.saved_s)))

    def _saved(self, finding: Finding, timers: StepTimers, line: Line | None) -> float:
        rank = -1 if finding.rank is None else finding.rank
        phase = UNTIMED if finding.phase == STEP else finding.phase
        if line is None:
            return self._detector.lost(rank).get(finding.phase, 0.0)
        if rank not in timers.ranks or phase not in line.phases:
            return 0.0
        saved = saved_without(line.seconds, timers.ranks.index(rank), line.phases.index(phase))
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
