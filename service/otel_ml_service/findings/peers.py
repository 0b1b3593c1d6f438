"""Which ranks do the same work: like is compared with like.

Ranks of one pipeline stage are peers, whatever their place in data, tensor and context parallelism. Where nobody says
which stage a rank is in, those are peers that send to and receive from other stages in the same phases: the first
stage receives nothing in the forward pass, and the last one nothing in the backward pass.

Ranks that are given more to do take longer, and are not slow for that: where a run records how much it was (tokens,
samples), what is usual is so for that much.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from otel_ml_service.findings.medians import low_median
from otel_ml_service.findings.phases import NOTHING_SAID, TimerKind, is_between_stages
from otel_ml_service.findings.step_timers import StepTimers

__all__ = ["Peers", "TimeOfAmounts", "groups_of", "is_pipeline", "usual_of"]

Floats = npt.NDArray[np.float64]
Groups = tuple[npt.NDArray[np.int64], ...]
"""The rows of each group."""

_IN_PROPORTION = 0.5
"""How much speaks for time in proportion at first, as squared changes of logarithms: some dozen changes by a fifth."""
_REMEMBERED = 0.995
"""Of changes, from step to step: some 200 steps."""
_STEEPEST = 2.0
"""Time as the square of the amount, attention of long sequences say."""
_MOSTLY = 0.5
"""From this power on time may be in proportion: beside what a call costs, it is so for the largest amounts."""
_UNSURE = 2.0
"""Standard errors by which time may go more with the amount than was seen."""
_DIFFERS = 0.02
"""Logarithm of a rank's amount against that of the rank in the middle, from which ranks are given different ones."""
_LARGEST_CHANGE = 2.0
"""Logarithm beyond which a change of time counts as this one: a rank that hangs once says nothing."""


def is_pipeline(phases: Sequence[str], kinds: Mapping[str, TimerKind] = NOTHING_SAID) -> bool:
    """Whether timers are those of a pipeline: its phases take turns, and are not a line."""
    return any(_handing_on(tuple(phases), tuple(map(kinds.get, phases))))


def groups_of(
    stages: Sequence[int | None],
    phases: Sequence[str],
    has: npt.NDArray[np.bool_],
    kinds: Mapping[str, TimerKind] = NOTHING_SAID,
) -> Groups:
    """Return the rows of ranks that are peers.

    Args:
        stages: of each rank its pipeline stage; None where nobody said it.
        phases: names of timers.
        has: [ranks, phases], whether a rank has the timer.
        kinds: what timers were declared to measure: one of work hands nothing on, whatever its name.

    Examples:
        >>> has = np.array([[False, True], [True, True], [False, True], [True, True]])
        >>> [rows.tolist() for rows in groups_of([None] * 4, ("recv", "compute"), has)]
        [[0, 2], [1, 3]]
        >>> [rows.tolist() for rows in groups_of([0, 0, 1, 1], ("recv", "compute"), has)]
        [[0, 1], [2, 3]]
    """
    hands_on = _handing_on(tuple(phases), tuple(map(kinds.get, phases)))
    columns = [column for column, is_handed_on in enumerate(hands_on) if is_handed_on]
    keys = [
        (stage, None) if stage is not None else (None, tuple(row))
        for stage, row in zip(stages, has[:, columns].tolist(), strict=True)
    ]
    numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    of_rows = np.array([numbers[key] for key in keys], dtype=np.int64)
    return tuple(np.flatnonzero(of_rows == number) for number in range(len(numbers)))


@lru_cache(maxsize=256)
def _handing_on(phases: tuple[str, ...], declared: tuple[TimerKind | None, ...]) -> tuple[bool, ...]:
    return tuple(kind != "work" and is_between_stages(phase) for phase, kind in zip(phases, declared, strict=True))


class Peers:
    """Which ranks do the same work, of all that were ever heard: nearly always as in the step before.

    Attributes:
        groups: of rows of the matrices [ranks, phases].
    """

    def __init__(self) -> None:
        self.groups: Groups = ()
        self._stages: dict[int, int | None] = {}
        self._kinds: dict[str, TimerKind] = {}
        self._has: npt.NDArray[np.bool_] = np.zeros((0, 0), dtype=bool)

    def of(self, timers: StepTimers, ranks: Iterable[int], phases: Iterable[str], seconds: Floats) -> Groups:
        """Take a step, of which `ranks` and `phases` are the rows and columns of `seconds`; return the groups."""
        has = ~np.isnan(seconds)
        # A timer that a rank ever had is one of its own: a step without it moves nobody to other peers.
        if has.shape == self._has.shape:
            has |= self._has
        stages = dict(zip(timers.ranks, timers.stages, strict=False))
        is_news = any(self._stages.get(rank) != stage for rank, stage in stages.items())
        if is_news or self._kinds != timers.kinds or has.shape != self._has.shape or (has != self._has).any():
            self._stages.update(stages)
            self._kinds = dict(timers.kinds)
            self._has = has
            of_rows = [self._stages.get(rank) for rank in ranks]
            self.groups = groups_of(of_rows, tuple(phases), has, timers.kinds)
        return self.groups


def usual_of(seconds: Floats, groups: Groups) -> Floats:
    """Return what is usual for each rank in each phase: the lower median of its peers; NaN where it has none.

    Args:
        seconds: [ranks, phases], or of many steps [ranks, steps, phases].
        groups: of its rows.
    """
    if seconds.ndim > 2:
        return usual_of(seconds.reshape(len(seconds), -1), groups).reshape(seconds.shape)
    if len(groups) == 1 and len(groups[0]) == len(seconds):  # as in most jobs
        usual = np.empty(seconds.shape)
        usual[:] = low_median(seconds, least=2)
        return usual
    usual = np.full(seconds.shape, np.nan)
    for rows in groups:
        usual[rows] = low_median(seconds[rows], least=2)
    return usual


class TimeOfAmounts:
    """How the time of each phase goes with what ranks are given to do: as a power of it, learned from step to step.

    Until it is learned, time goes in proportion: nobody is slow who may just have more to do.

    Attributes:
        deviations: of each phase, how much its time changes from step to step beside what amounts explain, as a share;
            0 where all ranks were given as much.
        shares: [ranks, amounts], logarithms of what each rank was given, against the one in the middle of its peers.
    """

    def __init__(self) -> None:
        self.shares: Floats = np.zeros((0, 0))
        self._amounts: tuple[str, ...] = ()
        self._before: tuple[Floats, Floats] = np.zeros((0, 0)), np.zeros((0, 0))
        self.deviations: Floats = np.zeros(0)
        # [4, amounts, phases]: how many changes, and sums of squares of amounts, of products, of squares of times.
        self._sums: Floats = np.zeros((4, 0, 0))

    def expected(self, seconds: Floats, amounts: tuple[str, ...], given: Floats, groups: Groups) -> Floats:
        """Return what the usual rank would take in each phase for as much as each rank was given; NaN where unknown.

        Args:
            seconds: [ranks, phases].
            amounts: names of what counts how much that is; of several, the one that explains most counts.
            given: [ranks, amounts].
            groups: of rows.

        Examples:
            Rank 0 has three times the tokens and takes three times as long; rank 2 has as many as rank 1:

            >>> seconds, tokens = np.array([[3.0], [1.0], [4.0]]), np.array([[300.0], [100.0], [100.0]])
            >>> TimeOfAmounts().expected(seconds, ("tokens",), tokens, (np.arange(3),)).round(3).tolist()
            [[3.0], [1.0], [1.0]]
        """
        given = np.where(given > 0, given, np.nan)
        is_time = (seconds > 0) & np.isfinite(seconds)
        self._learn(np.log(np.where(is_time, seconds, np.nan)), np.log(given), amounts)
        expected = np.full(seconds.shape, np.nan)
        self.deviations = np.zeros(seconds.shape[1])
        shares = np.full(given.shape, np.nan)
        for rows in groups:
            shares[rows] = given[rows] / low_median(given[rows])
        self.shares = np.log(shares)
        for column, (power, deviation) in enumerate(zip(*self._powers(), strict=True)):
            if (np.abs(self.shares[:, column]) > _DIFFERS).any():
                self.deviations = np.fmax(self.deviations, deviation)
            share = shares[:, column, None] ** power  # [ranks, phases]: so many times as long for what it was given
            expected = np.fmax(expected, usual_of(seconds / share, groups) * share)
        expected[np.isinf(expected)] = np.nan
        return expected

    def _powers(self) -> tuple[Floats, Floats]:
        """Return the largest power [amounts, phases] that what was seen allows, and what it leaves of the changes."""
        changes, of_amounts, of_both, of_times = self._sums
        # Least squares through 0, with what speaks for a power of 1 added as if it had been seen.
        known = of_amounts + _IN_PROPORTION
        power = (of_both + _IN_PROPORTION) / known
        left = np.maximum(of_times - 2 * power * of_both + power**2 * of_amounts, 0.0) / np.maximum(changes, 1.0)
        # In doubt more: a power too high excuses who is slow, one too low accuses who has more to do.
        power = np.clip(power + _UNSURE * np.sqrt(left / known), 0.0, _STEEPEST)
        return np.where(power < _MOSTLY, power, np.maximum(power, 1.0)), np.sqrt(left)

    def _learn(self, seconds: Floats, given: Floats, amounts: tuple[str, ...]) -> None:
        """Add how the logarithms of times and amounts changed since the step before."""
        shape = given.shape[1], seconds.shape[1]
        if amounts != self._amounts:
            self._amounts, self._sums = amounts, np.zeros((4, *shape))
        elif self._sums.shape[2] < shape[1]:
            self._sums = np.pad(self._sums, [(0, 0), (0, 0), (0, shape[1] - self._sums.shape[2])])
        before, self._before = self._before, (seconds, given)
        if before[0].shape != seconds.shape or before[1].shape != given.shape:
            return
        # [ranks, 1, phases] and [ranks, amounts, 1], so that each amount meets each phase.
        of_times = np.clip(seconds - before[0], -_LARGEST_CHANGE, _LARGEST_CHANGE)[:, None, :]
        of_amounts = (given - before[1])[:, :, None]
        known = np.isfinite(of_times) & np.isfinite(of_amounts)
        seen = (np.ones_like(known), of_amounts**2, of_amounts * of_times, of_times**2)
        self._sums = _REMEMBERED * self._sums + np.array([np.where(known, one, 0.0).sum(axis=0) for one in seen])
