"""What is remembered of every (rank, phase): the evidence for and against, in matrices that grow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

__all__ = ["EvidenceMatrix"]

Floats = npt.NDArray[np.float64]

Places = tuple[npt.NDArray[np.int64], ...]
"""What `np.ix_` makes."""

T = TypeVar("T", bound=np.generic)

MAX_CELLS = 1 << 20
"""Pairs of rank and timer that are looked at (some 60 MiB); further ranks and timers are not."""

_FIELDS = {
    "evidence": 0.0, "relief": 0.0, "before": np.nan, "recent": 0.0, "extra": 0.0, "seconds": 0.0, "total": 0.0,
    "counted": 0.0, "counted_before": 0.0,
    "looks": 0.0, "high": 0.0, "looks_again": 0.0, "high_again": 0.0, "row": 0.0,
    "seconds_before": 0.0, "total_before": 0.0, "over": 0.0, "steps": 0.0,
}  # fmt: skip


class EvidenceMatrix:
    """Matrices [ranks, phases], in the order in which these were first heard.

    Attributes:
        evidence: that the rank is slow (a CUSUM of log-likelihoods).
        relief: that it is slow no more.
        row: steps in a row in which it was long, after the first one.
        looks, high: in how many of the last steps it was looked at after one in which it was not long, and in how
            many of these it was long; `looks_again`, `high_again`: the same after one in which it was.
        was_high: it was long when it was looked at last.
        before: its slow-down in the step before.
        recent: its slow-down, smoothed over a few steps.
        extra: the same in seconds.
        over: how much longer than usual it is, on average of the last `steps` that it was seen in.
        seconds: lost since `since`.
        total: its slow-downs since `since`, added; of so many steps as `counted` says: their numbers may go up by more
            than one.
        seconds_before, total_before, counted_before: the same when the relief began.
        since: step at which the evidence began.
        until: the last step before the relief began.
        is_open: there is a finding.
    """

    def __init__(self) -> None:
        self.ranks: dict[int, int] = {}
        self.phases: dict[str, int] = {}
        for name in _FIELDS:
            setattr(self, name, np.zeros((0, 0)))
        self.since: npt.NDArray[np.int64] = np.zeros((0, 0), dtype=np.int64)
        self.until: npt.NDArray[np.int64] = np.zeros((0, 0), dtype=np.int64)
        self.is_open: npt.NDArray[np.bool_] = np.zeros((0, 0), dtype=bool)
        self.was_high: npt.NDArray[np.bool_] = np.zeros((0, 0), dtype=bool)
        self._known: tuple[Sequence[int], Sequence[str]] | None = None
        self._places: tuple[Places, Places] = (), ()
        self._is_whole = False

    # Set by name, from `_FIELDS`: these lines only tell their type.
    evidence: Floats
    relief: Floats
    before: Floats
    recent: Floats
    extra: Floats
    seconds: Floats
    total: Floats
    counted: Floats
    counted_before: Floats
    looks: Floats
    high: Floats
    looks_again: Floats
    high_again: Floats
    row: Floats
    seconds_before: Floats
    total_before: Floats
    over: Floats
    steps: Floats

    def grow(self, ranks: Sequence[int], phases: Sequence[str]) -> bool:
        """Make room for ranks and phases, as far as there is any; return whether something is new."""
        if self._known == (ranks, phases):
            return False
        shape = len(self.ranks), len(self.phases)
        # Phases first: where a first step is too large, it is ranks that are left out, not timers.
        for phase in phases:
            if phase not in self.phases and (len(self.phases) + 1) * max(len(self.ranks), 1) <= MAX_CELLS:
                self.phases[phase] = len(self.phases)
        for rank in ranks:
            if rank not in self.ranks and (len(self.ranks) + 1) * max(len(self.phases), 1) <= MAX_CELLS:
                self.ranks[rank] = len(self.ranks)
        if shape == (len(self.ranks), len(self.phases)):
            return False
        self._known = None  # a phase that had no room may have found one
        for name, empty in _FIELDS.items():
            setattr(self, name, self._larger(getattr(self, name), empty))
        self.since, self.until = self._larger(self.since, 0), self._larger(self.until, 0)
        self.is_open, self.was_high = self._larger(self.is_open, 0), self._larger(self.was_high, 0)
        return True

    def _larger(self, matrix: npt.NDArray[T], empty: float) -> npt.NDArray[T]:
        # New ranks and phases come last, so what is known keeps its place.
        larger = np.full((len(self.ranks), len(self.phases)), empty, dtype=matrix.dtype)
        larger[: matrix.shape[0], : matrix.shape[1]] = matrix
        return larger

    def begin(self, places: npt.NDArray[np.bool_], step: int) -> None:
        """Begin the sums of these places anew with a step."""
        self.since[places] = step
        self.seconds[places] = self.total[places] = self.counted[places] = 0.0

    def spread(self, ranks: Sequence[int], phases: Sequence[str], seconds: Floats) -> Floats:
        """Return `seconds` in the places of this matrix; NaN where nothing was given."""
        if self._known != (ranks, phases):  # else as in the step before: nearly always
            self._known, self._places = (ranks, phases), self._found(ranks, phases)
            self._is_whole = (tuple(ranks), tuple(phases)) == (tuple(self.ranks), tuple(self.phases))
        if self._is_whole:
            whole: Floats = seconds.copy()
            return whole
        spread = np.full((len(self.ranks), len(self.phases)), np.nan)
        places, given = self._places
        spread[places] = seconds[given]
        return spread

    def _found(self, ranks: Sequence[int], phases: Sequence[str]) -> tuple[Places, Places]:
        """Return where ranks and phases are in these matrices, and where those that are there were given."""
        rows = np.array([self.ranks.get(rank, -1) for rank in ranks], dtype=np.int64)
        columns = np.array([self.phases.get(phase, -1) for phase in phases], dtype=np.int64)
        known_rows, known_columns = np.flatnonzero(rows >= 0), np.flatnonzero(columns >= 0)
        return np.ix_(rows[known_rows], columns[known_columns]), np.ix_(known_rows, known_columns)
