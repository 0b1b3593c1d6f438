"""Who keeps all others waiting inside a step: ranks that have not finished what most have.

Where ranks wait for each other, one that hangs stops all of them in the same step. Nobody goes on, so nobody is late;
but of the one that hangs a timer is missing that the others, who wait for it in a later phase, have sent.
"""

from __future__ import annotations

import numpy as np

from otel_ml_service.findings.phases import UNTIMED
from otel_ml_service.findings.step_timers import StepTimers

__all__ = ["blocking_ranks", "without"]


def blocking_ranks(now: StepTimers, before: StepTimers) -> dict[int, str]:
    """Return rank → the first phase that it has not finished, that most ranks have, and that it had in the step before.

    Args:
        now: of a step in which nobody has gone on for long.
        before: of the last step that all have finished; a phase that a rank never has (another pipeline stage's)
            says nothing.

    Examples:
        >>> before = StepTimers((0, 1, 2), ("load", "forward"), np.ones((3, 2)))
        >>> blocking_ranks(StepTimers((0, 1, 2), ("load", "forward"), np.array([[1, 1], [1, np.nan], [1, 1]])), before)
        {1: 'forward'}
    """
    column_of = {phase: column for column, phase in enumerate(now.phases)}
    row_of = {rank: row for row, rank in enumerate(now.ranks)}
    has = ~np.isnan(now.seconds)
    # Phases that most ranks have finished: who lacks one of them is not just as far as all others.
    common = {phase for phase, column in column_of.items() if 2 * has[:, column].sum() > len(now.ranks)}
    found: dict[int, str] = {}
    for row_before, rank in enumerate(before.ranks):
        row = row_of.get(rank)
        if row is None:
            continue
        for column_before, phase in enumerate(before.phases):
            had = not np.isnan(before.seconds[row_before, column_before])
            if had and phase != UNTIMED and phase in common and not has[row, column_of[phase]]:
                found[rank] = phase
                # The first one in its order is where it hangs: those behind it are missing for that reason.
                break
    return found


def without(timers: StepTimers, ranks: frozenset[int]) -> StepTimers:
    """Return the timers as if nothing had been heard of `ranks`."""
    kept = [row for row, rank in enumerate(timers.ranks) if rank not in ranks]
    heard = timers._replace(
        ranks=tuple(timers.ranks[row] for row in kept), seconds=timers.seconds[kept], absent=timers.absent | ranks
    )
    return heard._replace(
        stages=tuple(timers.stages[row] for row in kept) if timers.stages else (),
        hosts=tuple(timers.hosts[row] for row in kept) if timers.hosts else (),
        topologies=tuple(timers.topologies[row] for row in kept) if timers.topologies else (),
        given=timers.given[kept] if len(timers.given) else timers.given,
        processes=tuple(timers.processes[row] for row in kept) if timers.processes else (),
        ended_ns=tuple(timers.ended_ns[row] for row in kept) if timers.ended_ns else (),
    )
