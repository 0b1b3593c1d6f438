"""Whether the times of ranks go with what they are given, lengths of sequences say: then nobody is slow.

A rank that is slow is slow in the next step, too. Where the data makes the difference, each step brings each rank a
change, and the same one to all that it does: of every rank the two longest timers that work are compared with those of
its peers, from step to step. Where these changes are large and go together, the shape of the data sets the time.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from otel_ml_service.findings.finding import Finding
from otel_ml_service.findings.medians import low_median, median
from otel_ml_service.findings.peers import Groups, groups_of
from otel_ml_service.findings.stages import working_phases
from otel_ml_service.findings.step_timers import StepTimers

__all__ = ["Shape"]

Floats = npt.NDArray[np.float64]

_KEPT = 0.95
"""Of what was seen, from step to step: some 20 steps."""
_REMEMBERED = 21
_STEPS, _CHANGES = 12, 40
"""Steps and changes that are looked at before anything is said."""
_VARIES, _VARIES_NO_MORE = 0.03, 0.02
"""Deviation of a timer from step to step, as a share of it."""
_TOGETHER, _APART = 0.9, 0.8
"""Correlation of the changes of two timers."""
_BAD = 0.75
"""Share of steps that are not as bad."""
_FAR = 3.0
"""Deviations beyond which a change counts as this one: a rank that becomes slow changes once, and by much."""
_SHORTEST_S = 1e-9
_NORMAL = 0.6745
"""Median of a normal distribution's absolute values."""
_SMOOTHING = 0.3


@dataclass(slots=True)
class _Seen:
    """What is remembered of two timers.

    Attributes:
        products: smoothed squares of both, and their product.
        deviations: of the changes of each, in the last steps; `deviation` is their median.
        steps, changes: looked at.
        excess_s, usual_s: seconds that the longest rank takes longer than the mean, and the mean's, smoothed.
        cost_s: of these since `since`.
        ranks, before: of the step before, and the logarithms of both, against those of peers.
        amounts, given_before: the same of what counts how much ranks are given to do.
        with_amounts: [amounts], smoothed squares of changes of the first timer, of amounts, and their product.
    """

    phases: tuple[str, str]
    since: int
    products: Floats = field(default_factory=lambda: np.zeros(3))
    deviations: deque[Floats] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))
    deviation: Floats = field(default_factory=lambda: np.zeros(2))
    steps: int = 0
    changes: int = 0
    excess_s: float = 0.0
    usual_s: float = 0.0
    cost_s: float = 0.0
    ranks: tuple[int, ...] = ()
    before: Floats = field(default_factory=lambda: np.zeros((0, 2)))
    amounts: tuple[str, ...] = ()
    given_before: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    with_amounts: Floats = field(default_factory=lambda: np.zeros((3, 0)))

    @property
    def amount(self) -> str:
        """What the times of each rank clearly go with; empty where that is nothing, or nothing is known."""
        of_times, of_amounts, of_both = self.with_amounts
        scale = np.sqrt(of_times * of_amounts)
        alike = np.divide(of_both, scale, out=np.zeros_like(scale), where=scale > 0)
        return self.amounts[int(alike.argmax())] if len(alike) and alike.max() >= _TOGETHER else ""

    @property
    def is_enough(self) -> bool:
        return self.steps >= _STEPS and self.changes >= _CHANGES

    @property
    def correlation(self) -> float:
        scale = float(np.sqrt(self.products[0] * self.products[1]))
        return float(self.products[2]) / scale if scale > 0 else 0.0


class Shape:
    """Looks at the steps of one role, axis and attempt, in their order.

    Attributes:
        open: what is so now, or None.
    """

    def __init__(self, finding: Finding | None = None) -> None:
        self.open = finding
        self._seen: _Seen | None = None
        self._phases: tuple[str, ...] = ()
        self._chosen: list[int] = []
        self._known: tuple[object, ...] = ()
        self._groups: Groups = ()

    def step(self, step: int, timers: StepTimers, parents: Mapping[str, str]) -> list[Finding]:
        """Take a step; return the finding that began or ended with it."""
        with np.errstate(invalid="ignore", divide="ignore"):  # NaN is a timer that a rank does not have
            columns = self._columns(timers, parents)
            if len(columns) < 2:
                return []
            self._look(step, timers, columns)
        return self._decided(step)

    @property
    def deviations(self) -> dict[str, float]:
        """How much each of the two timers changes in a bad step, as a share of it; empty where not with the data."""
        seen = self._seen
        if seen is None or not seen.deviations or seen.correlation < _APART or seen.deviation.max() < _VARIES:
            return {}
        often = np.quantile(np.array(seen.deviations), _BAD, axis=0, method="higher")
        return dict(zip(seen.phases, often.tolist(), strict=True))

    @property
    def explained_s(self) -> float:
        """Seconds a step that the data costs; infinite while too little was seen to tell."""
        if self.open is not None:
            return self.open.saved_s
        is_unknown = self._seen is not None and bool(self._groups) and not self._seen.is_enough
        return math.inf if is_unknown else 0.0

    def finish(self) -> list[Finding]:
        """Forget what is open; return it as over: another attempt begins."""
        over = [] if self.open is None else [_over(self.open)]
        self.open = self._seen = None
        return over

    def _columns(self, timers: StepTimers, parents: Mapping[str, str]) -> list[int]:
        """Return the columns of the two timers; which are the longest is looked at now and then."""
        seen = self._seen
        is_time = seen is None or (self.open is None and seen.steps % _REMEMBERED == 0)
        if is_time or self._phases != timers.phases:
            self._phases, self._chosen = timers.phases, _longest(timers, parents)
        return self._chosen

    def _look(self, step: int, timers: StepTimers, columns: list[int]) -> None:
        phases = timers.phases[columns[0]], timers.phases[columns[1]]
        if self._seen is None or self._seen.phases != phases:
            # Other timers are the longest now: what was found goes on with what it has cost.
            self._seen = _Seen(phases, step, cost_s=0.0 if self.open is None else self.open.cost_s)
        seen = self._seen
        seconds = timers.seconds[:, columns]
        groups = self._peers(timers)
        # Where times hardly vary, it is not the data that makes a rank the longest one.
        if self.open is not None or seen.deviation.min() > _VARIES_NO_MORE:
            _add_excess(seen, seconds.sum(axis=1), groups)
        against = _against_peers(seconds, groups)
        given = _against_peers(timers.given, groups) if timers.amounts else np.zeros((len(against), 0))
        if seen.ranks == timers.ranks:
            changed = against - seen.before
            known = np.isfinite(changed).all(axis=1)
            if known.any():
                _add_changes(seen, changed[known])
            if seen.amounts == timers.amounts:
                _add_amounts(seen, changed[:, :1], given - seen.given_before)
        seen.ranks, seen.before = timers.ranks, against
        if seen.amounts != timers.amounts:
            seen.amounts, seen.with_amounts = timers.amounts, np.zeros((3, len(timers.amounts)))
        seen.given_before = given

    def _peers(self, timers: StepTimers) -> Groups:
        """Return the rows of ranks that do the same work, where there are several: nearly always as before."""
        has = ~np.isnan(timers.seconds)
        known = timers.phases, timers.stages, timers.kinds, has.tobytes()
        if known != self._known:
            stages = timers.stages or (None,) * len(timers.ranks)
            groups = groups_of(stages, timers.phases, has, timers.kinds)
            self._known, self._groups = known, tuple(rows for rows in groups if len(rows) > 1)
        return self._groups

    def _decided(self, step: int) -> list[Finding]:
        seen = self._seen
        if seen is None or not seen.is_enough:
            return []
        # A change is the difference of two draws, which scatters √2 times as much as each.
        varies = float(seen.deviation.min()) / np.sqrt(2)
        if self.open is None:
            if varies < _VARIES or seen.correlation < _TOGETHER:
                return []
            self.open = _described(seen, step, seen.since)
            return [self.open]
        self.open = _described(seen, step, self.open.since)
        if varies >= _VARIES_NO_MORE and seen.correlation >= _APART:
            return []
        over, self.open, self._seen = _over(self.open), None, None
        return [over]


def _longest(timers: StepTimers, parents: Mapping[str, str]) -> list[int]:
    """Return the columns of the two longest timers that work, the first one first."""
    columns = working_phases(timers, parents)
    usual = np.nan_to_num(low_median(timers.seconds[:, columns])) if columns else np.zeros(0)
    return sorted(columns[place] for place in np.argsort(-usual, kind="stable")[:2].tolist())


def _against_peers(values: Floats, groups: Groups) -> Floats:
    """Return logarithms against those of peers."""
    against = np.full(values.shape, np.nan)
    for rows in groups:
        logarithms = np.log(np.maximum(values[rows], _SHORTEST_S))
        against[rows] = logarithms - median(logarithms)  # a mean would be moved by one rank's pause
    return against


def _add_excess(seen: _Seen, work: Floats, groups: Groups) -> None:
    of_groups = [of for rows in groups if len(of := work[rows][~np.isnan(work[rows])])]
    excess = max((float(of.max() - of.mean()) for of in of_groups), default=0.0)
    usual = max((float(of.mean()) for of in of_groups), default=0.0)
    seen.cost_s += excess
    weight = _SMOOTHING if seen.usual_s else 1.0
    seen.excess_s += weight * (excess - seen.excess_s)
    seen.usual_s += weight * (usual - seen.usual_s)


def _add_changes(seen: _Seen, changed: Floats) -> None:
    seen.deviations.append(median(np.abs(changed)) / _NORMAL)
    # A plain mean of the first steps, and then one that forgets.
    weight = 1 - _KEPT if seen.steps >= _STEPS else 1 / (seen.steps + 1)
    seen.deviation = median(np.array(seen.deviations))  # a step in which many ranks pause is one of many
    bound = _FAR * np.maximum(seen.deviation, 1e-12)
    # [ranks] each: the changes of the two timers.
    x, y = np.clip(changed, -bound, bound).T
    products = np.array([x @ x, y @ y, x @ y]) / len(changed)
    seen.products = seen.products + weight * (products - seen.products)
    seen.steps += 1
    seen.changes += len(changed)


def _add_amounts(seen: _Seen, of_times: Floats, of_amounts: Floats) -> None:
    """Add how a step changed the first timer of each rank, and what it was given."""
    known = np.isfinite(of_times) & np.isfinite(of_amounts)
    if known.any():
        products = (of_times**2, of_amounts**2, of_times * of_amounts)
        now = np.array([np.where(known, one, 0.0).sum(axis=0) for one in products])
        seen.with_amounts = _KEPT * seen.with_amounts + now


def _described(seen: _Seen, step: int, since: int) -> Finding:
    return Finding(
        "shape",
        None,
        " and ".join(seen.phases),
        "warning",
        since,
        step,
        slowdown=seen.excess_s / seen.usual_s if seen.usual_s > 0 else 0.0,
        extra_s=seen.excess_s,
        cost_s=seen.cost_s,
        correlation=round(seen.correlation, 4),
        amount=seen.amount,
        saved_s=seen.excess_s,
    )


def _over(finding: Finding) -> Finding:
    return replace(finding, is_over=True)
