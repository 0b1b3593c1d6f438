"""Where the time of a step goes: an account of all ranks that adds up to the step of the slowest one.

Phases are taken in their order. After each the frontier is the rank that has spent most so far; what the frontier moves
by in a phase is the time that the phase exposes, and who is at the front then is its rank. What others spend behind the
front costs nobody anything. Maxima of each phase alone do not add up: where all wait for a slow rank, its work and
their waiting would be counted twice (the method of StageFrontier, arXiv 2606.06751).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from otel_ml_service.findings.nesting import BESIDE
from otel_ml_service.findings.peers import is_pipeline
from otel_ml_service.findings.phases import STEP, UNTIMED, WHOLE_PIPELINE, accuses
from otel_ml_service.findings.step_timers import StepTimers

__all__ = ["Exposed", "Line", "exposed", "in_no_timer", "line_of", "own_time"]

Floats = npt.NDArray[np.float64]

_OVERLAP_S = 1e-9
"""Timers that overlap by more, without one being inside of the other, have no account."""


class Exposed(NamedTuple):
    """What a phase adds to the step, and the rank that is at the front after it."""

    phase: str
    seconds: float
    rank: int


class Line(NamedTuple):
    """Phases in their order, and the seconds [ranks, phases] that each rank is in each of them alone."""

    phases: tuple[str, ...]
    seconds: Floats


def exposed(timers: StepTimers, parents: Mapping[str, str]) -> list[Exposed]:
    """Return the account of a step; empty where there is none: one rank, timers that overlap.

    The seconds of all phases are those of the slowest rank. A timer around others counts without them, `step` as what
    is in none of its timers. The phases of a pipeline take turns, so there the account is that of the rank that works
    longest, which others wait for most: its timers, and what the longest `step` is more. Who waits may time sending and
    receiving at once, and its timers add up to more than a step. What runs beside others, on another thread, is left
    out: where training waits for it, that is in another timer, or untimed.

    Args:
        timers: of the step.
        parents: timer → the one that it is inside of, or `BESIDE`; without one it is inside of `step`, where there is
            that.

    Examples:
        Rank 1 is slow in the first phase; rank 0 waits for it in the second one:

        >>> timers = StepTimers((0, 1), ("forward", "reduce"), np.array([[1.0, 0.4], [1.3, 0.1]]))
        >>> [(phase, round(seconds, 3), rank) for phase, seconds, rank in exposed(timers, {})]
        [('forward', 1.3, 1), ('reduce', 0.1, 1)]
    """
    if is_pipeline(timers.phases, timers.kinds):
        return _of_the_busiest(timers, parents)
    line = line_of(timers, parents)
    if line is None:
        return []
    so_far = line.seconds.cumsum(axis=1)
    reached = so_far.max(axis=0)
    # By what the front moves in each phase.
    added = reached.copy()
    added[1:] -= reached[:-1]
    ranks = map(timers.ranks.__getitem__, so_far.argmax(axis=0).tolist())
    return list(map(Exposed, line.phases, added.tolist(), ranks))


def line_of(timers: StepTimers, parents: Mapping[str, str]) -> Line | None:
    """Return the phases of a step in a line, none inside of another; None where they are none: see `exposed()`."""
    return None if is_pipeline(timers.phases, timers.kinds) else _apart(timers, parents)


def _apart(timers: StepTimers, parents: Mapping[str, str]) -> Line | None:
    """Return the phases of a step, none inside of another; None where they overlap, or are too few."""
    timed = _in_line(timers.phases, tuple(map(parents.get, timers.phases)))
    if len(timers.ranks) < 2 or len(timed) < 2:
        return None
    phases = [timers.phases[column] for column in timed]
    seconds = timers.seconds[:, timed]
    seconds[np.isnan(seconds)] = 0.0
    own = own_time(seconds, phases, parents)
    # A timer that is shorter than those inside of it was not around them all the time.
    if own.min() < -_OVERLAP_S:
        return None
    return Line(tuple(UNTIMED if phase == STEP else phase for phase in phases), own)


@lru_cache(maxsize=256)
def _in_line(phases: tuple[str, ...], inside_of: tuple[str | None, ...]) -> list[int]:
    """Return the columns of the timers that are no other thread's; what is left of the step comes first."""
    timed = [column for column, phase in enumerate(phases) if phase != UNTIMED and inside_of[column] != BESIDE]
    return sorted(timed, key=lambda column: phases[column] != STEP)


def _of_the_busiest(timers: StepTimers, parents: Mapping[str, str]) -> list[Exposed]:
    # Megatron's timers of passes are inside of the one around all micro-batches; spans may not say it.
    inside = {
        phase: WHOLE_PIPELINE
        for phase in timers.phases
        if WHOLE_PIPELINE in timers.phases and phase != WHOLE_PIPELINE and phase.startswith(("forward-", "backward-"))
    }
    line = _apart(timers, {**inside, **parents})
    if line is None:
        return []
    works = [accuses(phase, timers.kinds) and phase not in {UNTIMED, WHOLE_PIPELINE} for phase in line.phases]
    row = int(line.seconds[:, works].sum(axis=1).argmax())
    seconds = dict(zip(line.phases, line.seconds[row].tolist(), strict=True))
    if STEP in timers.phases:
        whole = np.nan_to_num(timers.seconds[:, timers.phases.index(STEP)])
        # The account is the slowest step's: what the busiest rank's own is shorter is in none of its timers.
        seconds[UNTIMED] += float(whole.max() - whole[row])
    return [Exposed(phase, max(of_it, 0.0), timers.ranks[row]) for phase, of_it in seconds.items()]


def own_time(seconds: Floats, phases: Sequence[str], parents: Mapping[str, str]) -> Floats:
    """Return seconds [ranks, phases] of each timer without those of the timers inside of it."""
    own: Floats = seconds.copy()
    for outer, inside in _insides(tuple(phases), tuple(map(parents.get, phases))):
        # The first column less all others.
        own[:, outer] = np.subtract.reduce(seconds[:, [outer, *inside]], axis=1)
    return own


def in_no_timer(timers: StepTimers, parents: Mapping[str, str]) -> StepTimers:
    """Return timers with what each step takes in none of them, where some are inside of others.

    Args:
        timers: of the step; what is in no timer was made of them as if they followed one another.
        parents: see `exposed()`.
    """
    if not parents or UNTIMED not in timers.phases or STEP not in timers.phases:
        return timers
    timed = [column for column, phase in enumerate(timers.phases) if phase != UNTIMED]
    phases, seconds = [timers.phases[column] for column in timed], timers.seconds.copy()
    of_timers = seconds[:, timed]
    missing = np.isnan(of_timers[:, phases.index(STEP)])
    rest = own_time(np.nan_to_num(of_timers), phases, parents)[:, phases.index(STEP)]
    seconds[:, timers.phases.index(UNTIMED)] = np.where(missing, np.nan, np.maximum(rest, 0.0))
    return timers._replace(seconds=seconds)


@lru_cache(maxsize=256)
def _insides(phases: tuple[str, ...], inside_of: tuple[str | None, ...]) -> list[tuple[int, list[int]]]:
    """Return the column of each timer that is around others, and the columns of those."""
    column_of = {phase: column for column, phase in enumerate(phases)}
    insides: dict[int, list[int]] = {}
    for column, around in enumerate(inside_of):
        # Where the timer around it is not there, or it runs beside the others, it is inside of none.
        outer = column_of.get(STEP if around is None else around, column)
        if outer != column:
            insides.setdefault(outer, []).append(column)
    return list(insides.items())
