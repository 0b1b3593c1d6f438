"""Which pipeline stage has more work than the others: the model is cut unevenly, and no rank is slow.

The work of a rank is the sum of its timers that do not wait, that of a stage the lower median over its ranks: so a slow
rank is not taken for its stage. Stages are then compared with each other as ranks of one stage are. Where times go with
the data, a stage is only named where evening it out would save more than evening out the data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from otel_ml_service.findings.detector import Detector
from otel_ml_service.findings.finding import Finding, mean_with
from otel_ml_service.findings.medians import low_median
from otel_ml_service.findings.phases import STEP, UNTIMED, accusing
from otel_ml_service.findings.step_timers import StepTimers
from otel_ml_service.findings.what_if import saved_without_stage

__all__ = ["Stages", "surplus_of_stage", "work_of_stages", "working_phases"]

Floats = npt.NDArray[np.float64]

_WORK = "work"


class Stages:
    """Looks at the steps of one role, axis and attempt, in their order.

    Attributes:
        open: stage → what is the matter now.
    """

    def __init__(self, open_findings: Sequence[Finding] = ()) -> None:
        # The detector takes stages for ranks of one phase: so evidence, thresholds and costs are those of ranks.
        inner = (replace(one, kind="slow", rank=one.stage, phase=_WORK) for one in open_findings)
        self._detector = Detector(open_findings=tuple(inner))
        self._named = {one.stage for one in open_findings}

    def step(
        self, step: int, timers: StepTimers, parents: Mapping[str, str], explained_s: float = 0.0
    ) -> list[Finding]:
        """Take a step; return the findings that began, changed their level, or ended with it.

        Args:
            step: its number.
            timers: of the step.
            parents: timer → the one that it is inside of: what is around others is not added to them.
            explained_s: seconds that the shape of the data costs; infinite while that is not known.
        """
        stages, seconds = work_of_stages(timers, parents)
        if len(stages) < 2:
            return []
        found = self._detector.step(step, StepTimers(stages, (_WORK,), seconds.reshape(-1, 1)))
        for key, one in self._detector.open.items():
            if key[0] in stages:
                saved = saved_without_stage(seconds, stages.index(key[0]))
                self._detector.open[key] = replace(one, saved_s=mean_with(one, saved))
        return [*self._told(found), *self._begun(explained_s)]

    @property
    def open(self) -> dict[int, Finding]:
        """What lasts, by stage."""
        every = {stage: _of_stage(one) for (stage, _), one in self._detector.open.items()}
        return {stage: one for stage, one in every.items() if stage in self._named}

    def finish(self) -> list[Finding]:
        """Forget what is open; return it as over: another attempt begins."""
        over = self._told(self._detector.finish())
        self._named.clear()
        return over

    def _told(self, found: Sequence[Finding]) -> list[Finding]:
        """Return what is new of the stages that are named."""
        of_named = [one for one in found if one.rank in self._named]
        self._named -= {one.rank for one in of_named if one.is_over}
        # The open one has by now what a step would be shorter without it.
        return [_of_stage(one if one.is_over else self._detector.open[one.rank or 0, _WORK]) for one in of_named]

    def _begun(self, explained_s: float) -> list[Finding]:
        """Name the stages that nothing else explains."""
        of_others = [one for one in self._detector.open.values() if one.rank not in self._named]
        # Infinite while the shape of the data is not known: nothing is named until then.
        begun = [one for one in of_others if not explained_s or one.saved_s > explained_s]
        self._named |= {one.rank for one in begun}
        return [_of_stage(one) for one in begun]


def _of_stage(finding: Finding) -> Finding:
    return replace(finding, kind="stage", rank=None, phase="", stage=finding.rank)


def working_phases(timers: StepTimers, parents: Mapping[str, str]) -> list[int]:
    """Return the columns of timers that measure work, and are around no other one."""
    around = {*parents.values(), STEP, UNTIMED}
    works = accusing(timers.phases, timers.kinds)
    return [column for column, phase in enumerate(timers.phases) if works[column] and phase not in around]


def work_of_stages(timers: StepTimers, parents: Mapping[str, str]) -> tuple[tuple[int, ...], Floats]:
    """Return the stages that ranks said they are in, and the seconds of work of each.

    Examples:
        Stage 1 has more work; one rank of stage 0 is slow:

        >>> seconds = np.array([[1.0, 0.5], [1.6, 0.0], [4.0, 0.0], [1.6, 0.1]])
        >>> timers = StepTimers((0, 1, 2, 3), ("compute", "recv"), seconds, stages=(0, 1, 0, 1))
        >>> stages, work = work_of_stages(timers, {})
        >>> stages, work.tolist()
        ((0, 1), [1.0, 1.6])
    """
    columns = working_phases(timers, parents)
    stages = tuple(sorted({stage for stage in timers.stages if stage is not None}))
    if not columns or len(stages) < 2:
        return (), np.zeros(0)
    seconds = timers.seconds[:, columns]
    return stages, _of_stages(
        np.where(np.isnan(seconds).all(axis=1), np.nan, np.nansum(seconds, axis=1)), stages, timers
    )


def surplus_of_stage(
    timers: StepTimers, parents: Mapping[str, str], stage: int, phase: str | None
) -> tuple[Floats, float, int] | None:
    """Return the work of all stages, what a stage has more in a phase than they have on average, and its place.

    Args:
        timers: of the step.
        parents: timer → the one that it is inside of.
        stage: which one.
        phase: one of the timers; None for all work.
    """
    stages, work = work_of_stages(timers, parents)
    if stage not in stages or (phase is not None and phase not in timers.phases):
        return None
    place = stages.index(stage)
    part = work if phase is None else _of_stages(timers.seconds[:, timers.phases.index(phase)], stages, timers)
    return work, max(float(part[place] - np.nanmean(part)), 0.0), place


def _of_stages(of_ranks: Floats, stages: Sequence[int], timers: StepTimers) -> Floats:
    of_rank = np.array([-1 if stage is None else stage for stage in timers.stages])
    return np.array([low_median(of_ranks[of_rank == stage, None])[0] for stage in stages])
