"""The timers of one closed step, as everything that looks for findings takes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from otel_ml_service.findings.phases import NOTHING_SAID, TimerKind

__all__ = ["StepTimers", "only_times"]

Floats = npt.NDArray[np.float64]

_LONGEST_S = 1e9
"""Thirty years."""


class StepTimers(NamedTuple):
    """The timers of one closed step.

    Attributes:
        ranks: those heard in the step.
        phases: names of timers.
        seconds: [ranks, phases], each rank's total, NaN where it has none (`only_times()`).
        absent: ranks that were expected and of which nothing had arrived.
        stages: the pipeline stage of each rank, None where it did not say one; empty where nobody did.
        kinds: what timers were declared to measure; of others the name tells.
        hosts: of each rank, "" where it did not say one; empty where nobody did.
        topologies: of each rank, dimension → coordinate; the same.
        amounts: names of what counts how much a rank was given to do: tokens, samples.
        given: [ranks, amounts], how much that was; NaN where a rank says nothing.
        processes: which process each rank is; empty where nobody knows.
        ended_ns: of each rank, by its own clock, when the last of its timers was recorded; empty where nobody knows.
    """

    ranks: tuple[int, ...]
    phases: tuple[str, ...]
    seconds: Floats
    absent: frozenset[int] = frozenset()
    stages: tuple[int | None, ...] = ()
    kinds: Mapping[str, TimerKind] = NOTHING_SAID
    hosts: tuple[str, ...] = ()
    topologies: tuple[Mapping[str, int], ...] = ()
    amounts: tuple[str, ...] = ()
    given: Floats = np.zeros((0, 0))
    processes: tuple[str, ...] = ()
    ended_ns: tuple[int, ...] = ()

    def in_order_of(self, known: Sequence[str]) -> StepTimers:
        """Return the same timers, those that are `known` in that order; what is in no timer stays the first one."""
        place = {phase: number for number, phase in enumerate(known)}
        spots = [column for column, phase in enumerate(self.phases) if phase in place]
        sorted_ = sorted(spots, key=lambda column: place[self.phases[column]])
        if sorted_ == spots:
            return self
        # Known phases change places among themselves; all others stay where they are.
        columns = list(range(len(self.phases)))
        for spot, column in zip(spots, sorted_, strict=True):
            columns[spot] = column
        return self._replace(phases=tuple(self.phases[column] for column in columns), seconds=self.seconds[:, columns])


def only_times(seconds: Floats) -> Floats:
    """Return seconds with NaN for what is not a time: less than nothing, thirty years and more.

    Examples:
        >>> only_times(np.array([0.5, -1.0, np.inf, 1e300, np.nan])).tolist()
        [0.5, nan, nan, nan, nan]
    """
    return np.where((seconds >= 0) & (seconds <= _LONGEST_S), seconds, np.nan)
