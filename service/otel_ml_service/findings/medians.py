"""Medians over ranks, of columns with holes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["largest_of_rows", "low_median", "median", "middle"]

Floats = npt.NDArray[np.float64]


def low_median(values: Floats, least: int = 1) -> Floats:
    """Return each column's lower median; NaN where it has fewer than `least` numbers.

    The lower one of two: of two ranks the quicker one is the usual one.

    Examples:
        >>> low_median(np.array([[1.0, np.nan], [3.0, 5.0], [4.0, np.nan], [9.0, np.nan]]), least=2).tolist()
        [3.0, nan]
    """
    ordered = np.sort(values, axis=0)  # NaN sorts last
    count = len(ordered)
    if count >= max(least, 1) and not np.isnan(ordered[-1]).any():  # the usual case: every rank has every timer
        whole: Floats = ordered[(count - 1) // 2]
        return whole
    counts = _counts(values)
    return _picked(ordered, counts, (counts - 1) // 2, least)


def median(values: Floats, least: int = 1) -> Floats:
    """Return each column's median; NaN where it has fewer than `least` numbers."""
    low, high = middle(values, least)
    mean: Floats = (low + high) / 2
    return mean


def middle(values: Floats, least: int = 1) -> tuple[Floats, Floats]:
    """Return the two numbers in the middle of each column, of an odd count the same one; NaN where it has too few."""
    ordered = np.sort(values, axis=0)
    count = len(ordered)
    if count >= max(least, 1) and not np.isnan(ordered[-1]).any():
        return ordered[(count - 1) // 2], ordered[count // 2]
    counts = _counts(values)
    return _picked(ordered, counts, (counts - 1) // 2, least), _picked(ordered, counts, counts // 2, least)


def largest_of_rows(values: Floats) -> Floats:
    """Return the largest number of each row; NaN where it has none."""
    largest: Floats = np.where(np.isnan(values), -np.inf, values).max(axis=1, initial=-np.inf)
    return np.where(np.isinf(largest), np.nan, largest)


def _counts(values: Floats) -> npt.NDArray[np.int64]:
    counts: npt.NDArray[np.int64] = np.count_nonzero(~np.isnan(values), axis=0)
    return counts


def _picked(ordered: Floats, counts: npt.NDArray[np.int64], place: npt.NDArray[np.int64], least: int) -> Floats:
    if not len(ordered):
        return np.full(len(place), np.nan)
    # A column without numbers has place -1: what is picked there is left out below.
    chosen = ordered[np.maximum(place, 0), np.arange(len(place))]
    picked: Floats = np.where(counts >= max(least, 1), chosen, np.nan)
    return picked
