"""What each rank usually takes in each phase: what its peers take, for as much as it was given to do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt

from otel_ml_service.findings.evidence_matrix import EvidenceMatrix
from otel_ml_service.findings.medians import low_median
from otel_ml_service.findings.peers import Groups, Peers, TimeOfAmounts, usual_of
from otel_ml_service.findings.phases import STEP, UNTIMED
from otel_ml_service.findings.step_timers import StepTimers

__all__ = ["UsualTimes"]

Floats = npt.NDArray[np.float64]


class UsualTimes:
    """Looks at the steps of one role, axis and attempt, in their order.

    Attributes:
        amounts: what counts how much ranks are given to do, in the newest step; empty where ranks say nothing.
    """

    def __init__(self) -> None:
        self._peers = Peers()
        self._of_amounts = TimeOfAmounts()
        self._excused: Floats = np.zeros((0, 0))
        self.amounts: tuple[str, ...] = ()

    @property
    def groups(self) -> Groups:
        """The rows of ranks that do the same work."""
        return self._peers.groups

    @property
    def shares(self) -> Floats:
        """[ranks, amounts]: logarithms of what each rank is given in the newest step, against its peers."""
        return self._of_amounts.shares

    @property
    def deviations(self) -> Floats:
        """Of each phase, how much its time changes from step to step beside what amounts explain, as a share."""
        return self._of_amounts.deviations

    def excused(self, row: int, phases: Iterable[str]) -> Mapping[str, float]:
        """Return phase → seconds of the newest step that a rank takes longer because it is given more to do."""
        if not self.amounts or not 0 <= row < len(self._excused):
            return {}
        return dict(zip(phases, self._excused[row].tolist(), strict=False))

    def of(
        self, timers: StepTimers, seconds: Floats, cells: EvidenceMatrix, longest: Iterable[tuple[int, int]]
    ) -> Floats:
        """Return the usual seconds [ranks, phases]; NaN where nobody knows.

        Args:
            timers: of the step.
            seconds: the same in the rows and columns of `cells`.
            cells: says which rank and phase these are of.
            longest: (row, column) of who is not heard there and is known to be slow: it counts as longer than all
                others, so that of three ranks the one in the middle stays the usual one.
        """
        groups = self._peers.of(timers, cells.ranks, cells.phases, seconds)
        known = seconds.copy()
        for place in longest:
            known[place] = np.inf
        usual = usual_of(known, groups)
        if UNTIMED in cells.phases:
            _fill_in_untimed(usual, known, groups, cells.phases)
        usual[np.isinf(usual)] = np.nan  # most peers are slow and not heard: nobody knows
        self.amounts = timers.amounts
        if not timers.amounts:
            return usual
        rows = [cells.ranks.get(rank, -1) for rank in timers.ranks]
        given = np.full((len(seconds), len(timers.amounts)), np.nan)
        for row, amounts in zip(rows, timers.given, strict=True):
            if row >= 0:
                given[row] = amounts
        # Who is given less is not held to less: the usual time is the least that is allowed.
        allowed = np.fmax(usual, self._of_amounts.expected(known, timers.amounts, given, groups))
        self._excused = np.nan_to_num(np.maximum(np.minimum(seconds, allowed) - usual, 0.0))
        return allowed


def _fill_in_untimed(usual: Floats, seconds: Floats, groups: Groups, columns: Mapping[str, int]) -> None:
    """Write what a rank that lacks timers of its peers usually takes in none: what they time there is in none of its.

    Who times nothing but whole steps is compared in these.

    Args:
        usual: [ranks, phases]; the column of what is in no timer is written where a rank lacks a timer.
        seconds: of the step.
        groups: rows of ranks that do the same work.
        columns: of each phase.
    """
    untimed = columns[UNTIMED]
    beside = [columns[phase] for phase in (UNTIMED, STEP) if phase in columns]
    lacks = np.isnan(seconds)
    times_nothing = np.delete(lacks, beside, axis=1).all(axis=1)
    lacks[:, beside] = False
    for rows in groups:
        lacking = lacks[rows]
        lacking &= ~lacking.all(axis=0)
        if not lacking.any():
            continue
        times = np.where(np.isnan(seconds[rows]), 0.0, seconds[rows])
        # Ranks that lack the same timers together: what their peers take in none and in these is what they take in
        # none.
        for missing in np.unique(lacking[lacking.any(axis=1)], axis=0):
            alike = times[:, untimed] + times[:, missing].sum(axis=1)
            alike[np.isnan(seconds[rows, untimed])] = np.nan
            who = rows[(lacking == missing).all(axis=1)]
            usual[who, untimed] = low_median(alike[:, None], least=2)
    usual[times_nothing, untimed] = np.nan
