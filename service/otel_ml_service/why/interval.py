"""By how much two series differ, with a 95 % confidence interval that holds where neighbors are alike."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import NormalDist, fmean, variance
from typing import NamedTuple

__all__ = ["Interval", "of_differences", "of_means"]

_BLOCKS = 16
"""Blocks of neighbors, whose means are taken to be strangers to each other."""

_LEAST = 4
"""Blocks, and values of a block, that it takes."""

_LEVEL = 0.975


class Interval(NamedTuple):
    """A difference, and between what it is in 95 of 100 cases; None where there are too few steps to tell."""

    by: float
    low: float | None
    high: float | None

    @property
    def is_sure(self) -> bool:
        """Whether there is a difference at all."""
        return self.low is not None and self.high is not None and (self.low > 0 or self.high < 0)


def of_means(a: Sequence[float], b: Sequence[float]) -> Interval:
    """Return by how much the mean of `b` is larger, of steps that have nothing to do with each other (Welch).

    Examples:
        >>> of_means([1.0, 1.2] * 32, [2.0, 2.2] * 32)
        Interval(by=1.0, low=1.0, high=1.0)
        >>> of_means([1.0], [2.0])
        Interval(by=1.0, low=None, high=None)
    """
    by = fmean(b) - fmean(a)
    of_a, of_b = _blocks(a), _blocks(b)
    if min(len(of_a), len(of_b)) < _LEAST:
        return Interval(by, None, None)
    # Squared standard error of each mean, and its degrees of freedom; of both together they are Welch-Satterthwaite's.
    errors = [(variance(means) / len(means), len(means) - 1) for means in (of_a, of_b)]
    error = sum(square for square, _ in errors)
    weights = sum(square**2 / free for square, free in errors)
    reach = _student(error**2 / weights) * math.sqrt(error) if weights > 0 else 0.0
    return Interval(by, by - reach, by + reach)


def of_differences(differences: Sequence[float]) -> Interval:
    """Return the mean of differences at equal steps.

    Examples:
        >>> of_differences([0.5] * 64)
        Interval(by=0.5, low=0.5, high=0.5)
    """
    by, means = fmean(differences), _blocks(differences)
    if len(means) < _LEAST:
        return Interval(by, None, None)
    reach = _student(len(means) - 1) * math.sqrt(variance(means) / len(means))
    return Interval(by, by - reach, by + reach)


def _blocks(values: Sequence[float]) -> list[float]:
    count = min(_BLOCKS, len(values) // _LEAST)
    # As even as whole numbers allow: 18 values are 4 blocks, which begin at 0, 4, 9 and 13.
    bounds = [len(values) * number // count for number in range(count + 1)] if count else []
    return [fmean(values[begin:end]) for begin, end in pairwise(bounds)]


def _student(free: float) -> float:
    """Return the quantile of Student's t, to 1 % from three degrees of freedom on (Cornish and Fisher)."""
    z = NormalDist().inv_cdf(_LEVEL)
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / free + second / free**2 + third / free**3
