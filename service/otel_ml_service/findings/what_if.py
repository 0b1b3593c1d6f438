"""What a step would take without something: seconds that it would be shorter, from timers alone.

Where phases are a line, the step is played again. What a rank takes longer in a phase than the quickest rank, up
to how far it was ahead of the last one, was waiting, and is shorter when the last one comes sooner. Where ranks take
turns, in a pipeline, it counts how much later a rank comes to the first collective than its peers; and a stage sets the
pace as far as no other one has as much work, and layers can be moved.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from otel_ml_service.findings.medians import low_median
from otel_ml_service.findings.peers import Groups, usual_of
from otel_ml_service.findings.phases import STEP, UNTIMED, TimerKind, accuses, is_between_stages

__all__ = ["lateness", "saved_after_meeting", "saved_in_turns", "saved_without", "saved_without_stage"]

Floats = npt.NDArray[np.float64]


def saved_without(line: Floats, rows: Sequence[int], column: int) -> float:
    """Return how many seconds the step would be shorter if ranks took in a phase what the others usually take.

    Never more than what is taken away, and 0 where somebody else is as late.

    Args:
        line: [ranks, phases] in their order, none inside of another.
        rows: the ranks.
        column: the phase.

    Examples:
        Rank 1 works for 1.3 s and rank 2 for 1.1 s, instead of 1 s, and all wait for them:

        >>> line = np.array([[1.0, 0.4], [1.3, 0.1], [1.1, 0.3], [1.0, 0.4]])
        >>> round(saved_without(line, [1], 0), 9), saved_without(line, [2], 0), saved_without(line, [0], 1)
        (0.2, 0.0, 0.0)
        >>> round(saved_without(line, [1, 2], 0), 9)
        0.3
    """
    own, waits = _own_and_waiting(line)
    others = np.delete(own[:, column], rows)
    if not len(others):
        return 0.0
    quicker = own.copy()
    quicker[rows, column] = np.minimum(float(low_median(others[:, None])[0]), own[rows, column])
    return max(_played(own, waits) - _played(quicker, waits), 0.0)


def saved_after_meeting(line: Floats, rows: Sequence[int], column: int, together: Sequence[bool]) -> float:
    """Return the same of a phase that comes after a collective, where the others wait for it in the next one.

    From one collective to the next a step is as long as the rank that works longest.

    Args:
        line: [ranks, phases] in their order, none inside of another.
        rows: the ranks.
        column: the phase.
        together: [phases], which of them nobody leaves before all have come.

    Examples:
        Rank 1 writes for 0.3 s after all have met, and the others wait for it when they meet again:

        >>> line = np.array([[1.0, 0.3, 0.0], [1.0, 0.0, 0.3], [1.0, 0.3, 0.0]])
        >>> round(saved_after_meeting(line, [1], 2, (False, True, False)), 9), saved_without(line, [1], 2)
        (0.3, 0.0)
        >>> saved_after_meeting(line, [1], 0, (False, True, False))
        0.0
    """
    others = np.delete(line[:, column], rows)
    # Before the first meeting of a step a rank is waited for in that one, which `saved_without` plays.
    if not any(together[:column]) or not len(others):
        return 0.0
    work = np.where(np.array(together), 0.0, np.nan_to_num(line))
    quicker = work.copy()
    quicker[rows, column] = np.minimum(float(low_median(others[:, None])[0]), work[rows, column])
    return max(float(work.sum(axis=1).max() - quicker.sum(axis=1).max()), 0.0)


def _own_and_waiting(line: Floats) -> tuple[Floats, Floats]:
    """Return seconds [ranks, phases] without waiting, and which share of its head start each rank waited."""
    seconds = np.nan_to_num(line)
    reached = np.cumsum(seconds, axis=1)
    begun = reached - seconds
    # [ranks, phases]: by how much a rank comes to a phase before the last one does.
    ahead = np.maximum(np.concatenate((np.zeros(1), reached.max(axis=0)[:-1])) - begun, 0.0)
    # The quickest rank of a phase did not wait: it is taken for what the phase takes.
    quickest = np.nan_to_num(np.fmin.reduce(line, axis=0))
    waited = np.clip(seconds - quickest, 0.0, ahead)
    shares: Floats = np.divide(waited, ahead, out=np.zeros_like(ahead), where=ahead > 0)
    return seconds - waited, shares


def _played(own: Floats, waits: Floats) -> float:
    """Return the seconds of a step in which each rank waits its share of how far it is ahead."""
    now, last = np.zeros(len(own)), 0.0
    for column in range(own.shape[1]):
        # [ranks]: when each has finished the phase; `last` is when the last one had finished the phase before.
        now = now + own[:, column] + waits[:, column] * (last - now)
        last = float(now.max(initial=0.0))
    return last


def lateness(seconds: Floats, phases: tuple[str, ...], groups: Groups, kinds: Mapping[str, TimerKind]) -> Floats:
    """Return how many seconds later than its peers each rank comes to what they do together.

    What stages hand on counts, too: a slow rank finds there what it waits for, and works while others wait.

    Args:
        seconds: [ranks, phases] of a pipeline.
        phases: their names.
        groups: rows of ranks that do the same work.
        kinds: what timers were declared to measure.
    """
    alone = [phase not in {STEP, UNTIMED} and (accuses(phase, kinds) or is_between_stages(phase)) for phase in phases]
    total = np.nansum(seconds[:, alone], axis=1, keepdims=True)
    late: Floats = (total - usual_of(total, groups))[:, 0]
    return late


def saved_in_turns(
    seconds: Floats,
    phases: tuple[str, ...],
    groups: Groups,
    kinds: Mapping[str, TimerKind],
    rows: Sequence[int],
    column: int,
) -> float:
    """Return how many seconds a pipeline's step would be shorter if ranks took in a phase what their peers take.

    As much as they come later than their peers to what all do together, and no more than what is taken away.

    Args:
        seconds: [ranks, phases] of a pipeline.
        phases: their names.
        groups: rows of ranks that do the same work.
        kinds: what timers were declared to measure.
        rows: the ranks.
        column: the phase.
    """
    longer = (seconds - usual_of(seconds, groups))[list(rows), column]
    late = lateness(seconds, phases, groups, kinds)[list(rows)]
    return max(float(np.fmax.reduce(np.fmin(longer, late))), 0.0)


def saved_without_stage(work: Floats, place: int, surplus: float | None = None) -> float:
    """Return how many seconds a step would be shorter if what a stage has more were spread over all stages.

    The stage with the most work sets the pace, so of another one it is 0.

    Args:
        work: seconds of each stage; NaN where nothing is known of one.
        place: of the stage.
        surplus: seconds that the stage has more in a phase; by default in all of its work.

    Examples:
        >>> work = np.array([0.9, 0.9, 0.8, 1.4])
        >>> round(saved_without_stage(work, 3), 9), saved_without_stage(work, 1)
        (0.4, 0.0)
        >>> round(saved_without_stage(work, 3, 0.1), 9)
        0.1
    """
    others = np.delete(work, place)
    if not np.isfinite(others).any():
        return 0.0
    left = work[place] - surplus if surplus is not None else -np.inf
    # The pace then is set by all stages evenly, by another one that has more, or by what is left of this one.
    return max(float(work[place] - max(np.nanmean(work), np.nanmax(others), left)), 0.0)
