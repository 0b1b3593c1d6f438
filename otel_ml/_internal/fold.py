"""Folding: records become, per step and series, the partial that travels."""

from __future__ import annotations

import threading
import time
from typing import Any, NamedTuple

from otel_ml._internal.buckets import ExponentialBuckets
from otel_ml._internal.buffer import RECORDS, STRIDE, take
from otel_ml._internal.definition import Series
from otel_ml._internal.device import Deferred
from otel_ml._internal.guard import guard
from otel_ml._internal.step import Step

__all__ = ["FOLDER", "Folder", "Moments", "Order", "Pending", "relieve"]

Moments = tuple[int, float, float, float]
"""count, sum, min, max"""


class Order(NamedTuple):
    """The first and the last record of a series in a step, by time."""

    first_ns: int
    first: float
    last_ns: int
    last: float


class Pending:
    """What one step has gathered since the last collection.

    Attributes:
        groups: records not yet reduced, of the fold in progress.
        moments: per series; all but those of which only the order matters.
        m2: sum of squared deviations from the mean, where `std` is asked for.
        weights: Σw and Σwx, where a record had a weight; one without counts as weight 1.
    """

    __slots__ = ("buckets", "first_ns", "groups", "last_ns", "m2", "moments", "order", "weights")

    def __init__(self, first_ns: int) -> None:
        self.first_ns = self.last_ns = first_ns
        self.groups: dict[Series, list[float]] = {}
        self.moments: dict[Series, Moments] = {}
        self.m2: dict[Series, float] = {}
        self.buckets: dict[Series, ExponentialBuckets] = {}
        self.order: dict[Series, Order] = {}
        self.weights: dict[Series, tuple[float, float]] = {}

    def add_special(self, series: Series, value: float, weight: float | None, time_ns: int) -> None:
        """Add one record whose order or weight matters, or the first one of its series."""
        series.settle()
        if weight is not None and not series.weighted:
            series.use_weights()
        if series.weighted:
            self._add_weight(series, value, 1.0 if weight is None else weight)
        if series.ordered:
            self._add_order(series, value, time_ns)
        if series.moments or series.buckets:
            self.groups.setdefault(series, []).append(value)

    def _add_weight(self, series: Series, value: float, weight: float) -> None:
        sums = self.weights.get(series)
        if sums is None:
            # Records of this step that came before the first weight count as weight 1.
            count, total, _, _ = self.moments.get(series, (0, 0.0, 0.0, 0.0))
            group = self.groups.get(series, ())
            sums = (float(count + len(group)), total + sum(group))
        self.weights[series] = (sums[0] + weight, sums[1] + weight * value)

    def _add_order(self, series: Series, value: float, time_ns: int) -> None:
        seen = self.order.get(series)
        if seen is None:
            self.order[series] = Order(time_ns, value, time_ns, value)
        elif time_ns >= seen.last_ns:
            self.order[series] = seen._replace(last_ns=time_ns, last=value)
        elif time_ns < seen.first_ns:
            self.order[series] = seen._replace(first_ns=time_ns, first=value)

    def reduce(self) -> None:
        """Merge the groups into the partials and let the records go."""
        moments = self.moments
        for series, values in self.groups.items():
            if len(values) == 1:
                value = values[0]
                new = (1, value, value, value)
            else:
                new = _moments(values)
            if series.m2:
                self._merge_m2(series, values, new)
            if series.buckets:
                self.buckets.setdefault(series, ExponentialBuckets()).add(values)
            old = moments.get(series)
            moments[series] = new if old is None else _merged(old, new)
        self.groups = {}

    def _merge_m2(self, series: Series, values: list[float], new: Moments) -> None:
        mean = new[1] / new[0]
        m2 = sum([(value - mean) * (value - mean) for value in values])
        old = self.moments.get(series)
        if old is not None:
            # Chan, Golub, LeVeque 1979
            delta = mean - old[1] / old[0]
            m2 += self.m2[series] + delta * delta * old[0] * new[0] / (old[0] + new[0])
        self.m2[series] = m2

    @property
    def size(self) -> int:
        """How many partials it holds."""
        return len(self.moments) + len(self.order)

    @property
    def records(self) -> int:
        """How many records it holds, at least: of those reduced by order alone, one a series."""
        alone = sum(1 for series in self.order if series not in self.moments)
        return alone + sum(moments[0] for moments in self.moments.values())


def _moments(values: list[float]) -> Moments:
    total = sum(values)
    if total != total and any(value != value for value in values):
        # min() and max() skip a NaN or not depending on where it stands.
        return len(values), total, total, total
    return len(values), float(total), min(values), max(values)


def _merged(old: Moments, new: Moments) -> Moments:
    nan = old[2] + new[2]
    if nan != nan and (old[2] != old[2] or new[2] != new[2]):
        return old[0] + new[0], nan, nan, nan
    return old[0] + new[0], old[1] + new[1], min(old[2], new[2]), max(old[3], new[3])


class Folder:
    """Owner of all that is recorded and not yet collected.

    Attributes:
        lock: guards everything below, `Step.pending` and taking from the buffer. Callers only ever try it.
        steps: those with something pending, in the order of their first record.
        deferred: device values that could not be read yet.
        values: folded since the last collection.
        recorded: folded since the process began.
        caller_s: seconds callers spent folding.
    """

    MAX_POINTS = 200_000
    """Partials kept while nobody collects (before `init()`): about 60 MB."""

    MAX_DEFERRED = 100_000
    """Device values kept while the device is behind; their copies are memory of the device."""

    def __init__(self) -> None:
        self.deferred: list[tuple[Series, Step, Deferred, int]] = []
        self.forget()

    def forget(self) -> None:
        """Start with nothing, and with a lock nobody holds."""
        self.lock = threading.Lock()
        # A forked child must not free device memory of its parent: what is deferred stays referenced.
        self._inherited = self.deferred
        self.deferred = []
        self.steps: dict[Step, None] = {}
        self.values = 0
        self.recorded = 0
        self.caller_s = 0.0

    def fold(self) -> None:
        """Fold all records; the lock is held by the caller."""
        part = take()
        self._count(len(part) // STRIDE)
        step_before: Step | None = None
        pending = Pending(0)  # of no step
        last = 0
        records = iter(part)
        for series, step, value, time_ns in zip(records, records, records, records, strict=False):
            if step is not step_before:
                pending.last_ns = max(pending.last_ns, last)
                step_before = step
                pending = self._pending(step, time_ns)
                groups = pending.groups
            last = time_ns
            if type(value) is not float or series.special:
                self._fold_special(pending, step, series, value, time_ns)
                continue
            group = groups.get(series)
            if group is None:
                groups[series] = [value]
            else:
                group.append(value)
        pending.last_ns = max(pending.last_ns, last)
        self._reduce()

    def read_deferred(self) -> None:
        """Put device values that are done by now back into the buffer; the lock is held by the caller."""
        waiting = []
        for record in self.deferred:
            series, step, value, time_ns = record
            if not value.ready():
                waiting.append(record)
                continue
            step.waiting -= 1
            values = value.read()
            if values:
                RECORDS.extend((series, step, values, time_ns))
        self.deferred = waiting

    def drop_deferred(self) -> None:
        """Give up on device values that never came; the lock is held by the caller."""
        for _, step, _, _ in self.deferred:
            step.waiting -= 1
        guard.dropped["device_not_done"] += len(self.deferred)
        self.deferred = []

    def _count(self, values: int) -> None:
        self.values += values
        self.recorded += values

    def _pending(self, step: Step, time_ns: int) -> Pending:
        pending = step.pending
        if pending is None:
            pending = step.pending = Pending(time_ns)
            self.steps[step] = None
        pending.first_ns = min(pending.first_ns, time_ns)
        return pending

    def _fold_special(self, pending: Pending, step: Step, series: Series, value: Any, time_ns: int) -> None:
        if series.internal:
            self._count(-1)
        if isinstance(value, Deferred):
            self._count(-1)
            self._defer(series, step, value, time_ns)
        elif type(value) is list:
            self._count(len(value) - 1)
            for item in value:
                self._fold_one(pending, series, item, time_ns)
        else:
            self._fold_one(pending, series, value, time_ns)

    def _fold_one(self, pending: Pending, series: Series, value: Any, time_ns: int) -> None:
        if type(value) is tuple:
            pending.add_special(series, value[0], value[1], time_ns)
        else:
            pending.add_special(series, value, None, time_ns)

    def _defer(self, series: Series, step: Step, value: Deferred, time_ns: int) -> None:
        if len(self.deferred) >= self.MAX_DEFERRED:
            guard.dropped["device_backlog"] += 1
            guard.say("The device is so far behind that its newest values are not recorded (device_backlog).")
            return
        step.waiting += 1
        self.deferred.append((series, step, value, time_ns))

    def _reduce(self) -> None:
        points = 0
        for step in self.steps:
            if step.pending is not None:
                step.pending.reduce()
                points += step.pending.size
        while points > self.MAX_POINTS and len(self.steps) > 1:
            oldest = next(iter(self.steps))
            del self.steps[oldest]
            pending, oldest.pending = oldest.pending, None
            if pending is not None:
                points -= pending.size
                guard.dropped["buffer_full"] += pending.records
                guard.say(f"Nobody collected for {self.MAX_POINTS:,} points: the oldest are dropped (buffer_full).")


FOLDER = Folder()


def relieve() -> None:
    """Fold on the caller's thread, unless somebody folds already: what bounds the buffer in a tight loop."""
    lock = FOLDER.lock
    if lock.acquire(blocking=False):
        begin = time.perf_counter()
        try:
            FOLDER.fold()
        finally:
            lock.release()
            FOLDER.caller_s += time.perf_counter() - begin
