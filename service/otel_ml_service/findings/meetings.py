"""Who comes late out of the step before: it waits less in the next collective, and is not ahead of the others after it.

Timers of a step are added up as if all ranks began it at once. A rank that comes late out of the step before, by what
it did after the last collective, waits less in the next one, and all leave that together. Another one that waits less
is ahead: where groups of ranks meet, or racks leave one after the other, and what comes next hides another meeting
(gradients that are reduced while `backward` runs). Both take longer after it, in each step. They differ in what was
first: who is late took longer in a step, and waited less in the next one.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from otel_ml_service.findings.blame import own_extra
from otel_ml_service.findings.peers import Groups
from otel_ml_service.findings.phases import STEP, TimerKind, accuses, meeting

__all__ = ["Meetings"]

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

_HARDLY = 0.05
"""Of its step: who comes last waits for next to nothing. Else the device, or the network, is what comes last."""
_MOSTLY = 0.5
"""Of what a rank waits less: if it comes as late as that, that is why; and a phase that made it so late is its own."""
_ALONE = 0.5
"""Of how late a rank comes by a phase: if another one is as late by then, one of them may have waited for the other."""
_MORE, _LESS = 0.5, 0.05
"""Of how much less a rank waits for other reasons, the part of a step in which it is more, and in which it is less.

Where others are late now and then it waits for them, and that says nothing about how early it leaves."""


class Meetings:
    """Looks at the steps of one role, axis and attempt, in their order."""

    def __init__(self) -> None:
        self._late: Floats = np.zeros((0, 0))
        """[ranks, phases], seconds that each comes later than its peers out of the step before, by its own work."""
        self._less: Floats = np.zeros((0, 0))
        """[ranks, phases], seconds that each waits less than its peers when it is not late; NaN where nobody knows."""

    def know(self, shape: tuple[int, int], place: tuple[int, int], late_s: float) -> None:
        """Go on with what was known of a rank in a phase before a restart of the service."""
        self._grow(shape)
        self._late[place] = late_s

    def own_extra(
        self,
        seconds: Floats,
        usual: Floats,
        groups: Groups,
        columns: Mapping[str, int],
        kinds: Mapping[str, TimerKind],
    ) -> Floats:
        """Take a step; return how many seconds longer than its peers each rank worked, without what may be waiting.

        Args:
            seconds: [ranks, phases] of all that are known.
            usual: of each rank.
            groups: rows of ranks that do the same work.
            columns: of the phases of the step, in the order in which they are recorded.
            kinds: what timers were declared to measure.
        """
        line, together = list(columns.values()), meeting(tuple(columns), kinds)
        if not any(together):
            return own_extra(seconds[:, line], usual[:, line], groups)
        self._grow(seconds.shape)
        later, is_own = self._later(seconds, usual, line, together)
        extra = own_extra(seconds[:, line], usual[:, line], groups, later, is_own)
        works = [accuses(phase, kinds) and phase != STEP for phase in columns]
        self._leave(np.where(works, np.nan_to_num(extra), 0.0), ~np.isnan(seconds[:, line]) & together, line)
        return extra

    def _later(
        self, seconds: Floats, usual: Floats, line: list[int], together: tuple[bool, ...]
    ) -> tuple[Floats, Flags]:
        """Return [ranks, phases] of the line: seconds that each begins later than its timers tell, and if by it."""
        later = np.zeros((len(seconds), len(line)))
        is_own = np.zeros(later.shape, dtype=bool)
        hardly = _HARDLY * np.nansum(seconds[:, line], axis=1)
        for place in np.flatnonzero(together).tolist():
            by_lateness = self._by_lateness(seconds[:, line[place]], usual[:, line[place]], line[place])
            # Who waits for longer than `hardly` did not come last. `~` of `<=`, and not `>`: so NaN counts as longer.
            by_lateness[~(seconds[:, line[place]] <= hardly)] = 0.0
            is_late, late = by_lateness > 0, self._late[:, line[place + 1 :]]
            made_it_late = _is_alone(late) & (late >= _MOSTLY * by_lateness[:, None])
            is_own[:, place + 1 :] |= is_late[:, None] & made_it_late
            later[:, place + 1 :] += by_lateness[:, None]
            # The others have waited for it by now.
            self._late[is_late] = 0.0
        return later, is_own

    def _by_lateness(self, seconds: Floats, usual: Floats, column: int) -> Floats:
        """Return how many seconds each rank waited less in a collective for coming late; 0 where it did not."""
        less, known, late = usual - seconds, self._less[:, column], self._late.sum(axis=1)
        by_lateness = np.nan_to_num(np.maximum(less - np.nan_to_num(known), 0.0))
        by_lateness[late < _MOSTLY * by_lateness] = 0.0
        before = np.where(np.isnan(known), less, known)
        now = before + np.where(less > before, _MORE, _LESS) * (less - before)
        self._less[:, column] = np.where(late < _MOSTLY * np.abs(less), now, known)
        return by_lateness

    def _leave(self, own: Floats, has_met: Flags, line: list[int]) -> None:
        """Note who comes late out of a step: by what it did after it met others, or in the steps since then.

        Args:
            own: [ranks, phases] of the line, seconds that each rank worked longer than its peers.
            has_met: the same, where it met others.
            line: the columns of the phases.
        """
        # [ranks, phases]: whether a rank meets others in this phase or in one after it, where it is waited for.
        meets_later = np.cumsum(has_met[:, ::-1], axis=1)[:, ::-1] > 0
        # Who has met others left together with them: what made it late before is over.
        self._late[has_met.any(axis=1)] = 0.0
        self._late[:, line] = np.maximum(self._late[:, line] + np.where(meets_later, 0.0, own), 0.0)

    def _grow(self, shape: tuple[int, int]) -> None:
        if self._less.shape != shape:
            self._late, self._less = _grown(self._late, shape, 0.0), _grown(self._less, shape, np.nan)


def _is_alone(late: Floats) -> Flags:
    """Whether nobody else is nearly as late by the same phase, or by one before it: it may be waited for there.

    Examples:
        Rank 0 collects in the second phase what rank 2 writes in the first one:

        >>> _is_alone(np.array([[0.0, 0.3], [0.1, 0.0], [0.3, 0.0]])).tolist()
        [[False, False], [False, False], [True, False]]
    """
    if len(late) < 2:
        return np.zeros(late.shape, dtype=bool)
    so_far = np.cumsum(late, axis=1)
    second, last = np.sort(so_far, axis=0)[-2:]
    others = np.where(so_far == last, second, last)
    is_alone: Flags = (late > 0) & (others <= _ALONE * late)
    return is_alone


def _grown(values: Floats, shape: tuple[int, int], empty: float) -> Floats:
    grown = np.full(shape, empty)
    grown[: values.shape[0], : values.shape[1]] = values
    return grown
