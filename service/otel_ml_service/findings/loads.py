"""Ranks that are always given more to do than their peers: they take longer, the others wait, and nobody is slow.

What a rank is given is compared with the rank in the middle of its peers, step by step. It is more where the mean of
its logarithm is so by a tenth and by far more than it scatters: lengths that differ from step to step do not count.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from otel_ml_service.findings.detector import Detector
from otel_ml_service.findings.finding import Finding

__all__ = ["Loads"]

Floats = npt.NDArray[np.float64]

_STEPS, _REMEMBERED = 24, 32
"""Steps before anything is said, and those that a mean is over."""
_MORE, _NO_MORE = float(np.log(1.1)), float(np.log(1.05))
_SURE = 8.0
"""Standard errors of a mean that chance does not make."""
_WORTH, _WORTH_NO_MORE = 0.05, 0.025
"""Of the step, that it would be shorter."""
_A_PART = 0.1
"""Of what a rank takes longer: a phase that is named."""
_AS_MUCH = 0.5
"""Of what the rank with most takes longer: who has nearly as much is named beside it."""
_NAMED = 4
_SMOOTHING = 0.3

Saved = Callable[[Sequence[int], str], float]
"""(ranks, phase) → how many seconds the step would be shorter if these took what the others take."""


class Loads:
    """Looks at the steps of one role, axis and attempt, in their order.

    Attributes:
        open: who has more to do now, or None.
    """

    def __init__(self, finding: Finding | None = None) -> None:
        self.open = finding
        self._known: tuple[object, ...] = ()
        self._steps = 0
        self._mean: Floats = np.zeros((0, 0))
        self._square: Floats = np.zeros((0, 0))
        self._since: npt.NDArray[np.int64] = np.zeros((0, 0), dtype=np.int64)

    def step(
        self, step: int, detector: Detector, phases: Collection[str], step_s: float, saved: Saved
    ) -> list[Finding]:
        """Take a step; return what began or ended with it.

        Args:
            step: its number.
            detector: that has looked at it.
            phases: that measure work, none around another.
            step_s: its seconds; 0 where nobody knows.
            saved: plays the step again.
        """
        if detector.amounts:
            self._look(step, detector)
        if self.open is not None:
            return self._go_on(step, detector, phases, step_s, saved)
        self.open = self._begun(step, detector, phases, step_s, saved) if detector.amounts and step_s > 0 else None
        return [] if self.open is None else [self.open]

    def finish(self) -> list[Finding]:
        """Forget what is open; return it as over: another attempt begins."""
        over = [] if self.open is None else [replace(self.open, is_over=True)]
        self.open, self._known = None, ()
        return over

    def _look(self, step: int, detector: Detector) -> None:
        """Follow the mean and the square of what each rank is given; the mean of a step that lacks it stays."""
        known, shares = (detector.amounts, detector.ranks), detector.shares
        if known != self._known:
            self._known, self._steps = known, 0
            self._mean, self._square = np.zeros(shares.shape), np.zeros(shares.shape)
            self._since = np.full(shares.shape, step)
        self._steps += 1
        # A plain mean at first, and then one that forgets.
        weight = 1 / min(self._steps, _REMEMBERED)
        shares = np.where(np.isfinite(shares), shares, self._mean)
        self._mean += weight * (shares - self._mean)
        self._square += weight * (shares**2 - self._square)
        # Never further back than the last step at which it was not so.
        self._since = np.where(self._mean < _MORE, step + 1, self._since)

    def _with_more(self) -> npt.NDArray[np.bool_]:
        """Return [ranks, amounts], whether a rank is always given more."""
        if self._steps < _STEPS:
            return np.zeros(self._mean.shape, dtype=bool)
        # Standard error of the mean; rounding may make the variance of equal amounts negative.
        error = np.sqrt(np.maximum(self._square - self._mean**2, 0.0) / min(self._steps, _REMEMBERED))
        return (self._mean >= _MORE) & (self._mean >= _SURE * error)

    def _begun(
        self, step: int, detector: Detector, phases: Collection[str], step_s: float, saved: Saved
    ) -> Finding | None:
        with_more = self._with_more()
        rows = np.flatnonzero(with_more.any(axis=1)).tolist()
        longer = {detector.ranks[row]: _longer(detector, detector.ranks[row], phases) for row in rows}
        most = max(longer.values(), default=0.0)
        ranks = tuple(sorted(rank for rank, of_it in longer.items() if of_it > 0 and of_it >= _AS_MUCH * most))
        if not ranks:
            return None
        row = detector.ranks.index(max(ranks, key=longer.__getitem__))
        column = int(np.where(with_more[row], self._mean[row], -np.inf).argmax())
        blank = Finding(
            "load", None, " and ".join(_phases_of(detector, ranks, phases)), "warning", int(self._since[row, column]),
            step, where=_who(ranks), ranks=ranks, amount=detector.amounts[column],
        )  # fmt: skip
        found = self._described(blank, detector, phases, saved)
        return found if found.saved_s > _WORTH * step_s else None

    def _go_on(
        self, step: int, detector: Detector, phases: Collection[str], step_s: float, saved: Saved
    ) -> list[Finding]:
        before = self.open
        assert before is not None
        now = self._described(replace(before, last=step), detector, phases, saved)
        is_more = any(self._mean_of(rank, before.amount, detector) > _NO_MORE for rank in before.ranks)
        if is_more and now.saved_s > _WORTH_NO_MORE * step_s:
            self.open = now
            return []
        # Over as it was before this step, at which it was not so.
        self.open = None
        return [replace(before, is_over=True)]

    def _mean_of(self, rank: int, amount: str, detector: Detector) -> float:
        if rank not in detector.ranks or amount not in detector.amounts:
            return 0.0
        return float(self._mean[detector.ranks.index(rank), detector.amounts.index(amount)])

    def _described(self, one: Finding, detector: Detector, phases: Collection[str], saved: Saved) -> Finding:
        longer = max(_longer(detector, rank, phases) for rank in one.ranks)
        shorter = min(sum(saved(one.ranks, phase) for phase in _phases_of(detector, one.ranks, phases)), longer)
        means = [mean for rank in one.ranks if (mean := self._mean_of(rank, one.amount, detector))]
        return replace(
            one,
            extra_s=_smoothed(one.extra_s, longer),
            # When it begins, it has cost so much since the step at which it was so first.
            cost_s=one.cost_s + longer if one.cost_s else longer * (one.last - one.since + 1),
            saved_s=_smoothed(one.saved_s, shorter),
            given=float(np.exp(max(means))) if means else one.given,
        )


def _longer(detector: Detector, rank: int, phases: Collection[str]) -> float:
    return sum(seconds for phase, seconds in detector.excused(rank).items() if phase in phases)


def _phases_of(detector: Detector, ranks: Sequence[int], phases: Collection[str]) -> list[str]:
    """Return the phases in which ranks take longer for what they are given."""
    total = sum(_longer(detector, rank, phases) for rank in ranks)
    longer = {phase: sum(detector.excused(rank).get(phase, 0.0) for rank in ranks) for phase in phases}
    return [phase for phase, seconds in longer.items() if seconds > _A_PART * total]


def _who(ranks: Sequence[int]) -> str:
    """Return who it is.

    Examples:
        >>> _who([2]), _who([2, 5]), _who(range(12))
        ('rank 2', 'ranks 2, 5', '12 ranks')
    """
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    return f"ranks {', '.join(map(str, ranks))}" if len(ranks) <= _NAMED else f"{len(ranks)} ranks"


def _smoothed(before: float, now: float) -> float:
    return before + (_SMOOTHING if before else 1.0) * (now - before)
