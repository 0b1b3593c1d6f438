"""How often ranks are long that are not slow: where everybody is now and then, being long says little.

A phase's other ranks vouch for each. Who was long in the step before is compared with others who were: what makes a
step long may last for some.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from otel_ml_service.findings.evidence_matrix import EvidenceMatrix

__all__ = ["add_up", "beside", "count", "forget", "seldom"]

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

_SELDOM, _SELDOM_LOOKS = 0.04, 20.0
"""The share of steps in which a rank that is not slow is long: a guess that counts as so many looks."""
_REMEMBERED = 0.995
"""Of looks, from step to step: some 200 steps."""
_STEPS = 24.0
"""Over about so many steps it is known how much longer than usual ranks are."""


def seldom(cells: EvidenceMatrix, most: float) -> Floats:
    """Return in which share of steps, `most` at most, each rank is long in each phase if it is as the others are."""
    first = _share_of_others(cells.high, cells.looks, _SELDOM)
    again = _share_of_others(cells.high_again, cells.looks_again, first)
    return np.minimum(np.where(cells.was_high, again, first), most)


def count(cells: EvidenceMatrix, high: Flags, is_looked_at: Flags) -> None:
    """Count how often ranks that are not slow are long; steps in a row when the row is over.

    Ranks that become slow together are long again and again, and would vouch for each other.
    """
    first = is_looked_at & ~cells.was_high
    cells.looks[first] = cells.looks[first] * _REMEMBERED + 1
    cells.high[first] = cells.high[first] * _REMEMBERED + high[first]
    again = is_looked_at & cells.was_high
    if not again.any():
        return
    cells.row[again & high] += 1
    over = again & ~high
    # A row of n long steps after the first: n looks at which it was long again, and this one, at which it was not.
    cells.looks_again[over] = cells.looks_again[over] * _REMEMBERED + cells.row[over] + 1
    cells.high_again[over] = cells.high_again[over] * _REMEMBERED + cells.row[over]
    cells.row[over] = 0.0


def forget(cells: EvidenceMatrix, place: tuple[int, int]) -> None:
    """Forget how often a rank was long that was slow already: it says nothing about those that are not."""
    for counts in (cells.looks, cells.high, cells.looks_again, cells.high_again, cells.row):
        counts[place] = 0.0


def add_up(cells: EvidenceMatrix, slow: Floats) -> None:
    """Follow how much longer than usual each rank is on average; a step in which it is not counts as 0."""
    seen = ~np.isnan(slow)
    cells.steps[seen] = np.minimum(cells.steps[seen] + 1, _STEPS)
    cells.over[seen] += (np.maximum(slow[seen], 0.0) - cells.over[seen]) / cells.steps[seen]


def beside(cells: EvidenceMatrix, suspects: Flags) -> Floats:
    """Return how much longer than usual those beside each suspect are, on average: that is not a sign of anything.

    The one in the middle: of those that are slow there may be nearly half.
    """
    usually = np.zeros(suspects.shape)
    for row, column in np.argwhere(suspects).tolist():
        is_known = cells.steps[:, column] > 0
        is_known[row] = False
        usually[row, column] = np.median(cells.over[is_known, column]) if is_known.any() else 0.0
    return usually


def _share_of_others(high: Floats, looks: Floats, guess: Floats | float) -> Floats:
    # What is counted of all ranks of a phase, less a rank's own; the guess counts as looks that were had before.
    share: Floats = (guess * _SELDOM_LOOKS + high.sum(axis=0) - high) / (_SELDOM_LOOKS + looks.sum(axis=0) - looks)
    return share
