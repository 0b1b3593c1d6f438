"""States that merge exactly: the extension point for reductions of one's own, and the samples' heaps."""

# ruff: noqa: D102 (what a method does is reported once, in `MetricAccumulator`)
from __future__ import annotations

import heapq
import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from otel_ml.compat.forge.metric import Reduce, Sample
from otel_ml.compat.forge.states import KNOWN, State, in_our_words
from otel_ml.warn_once import say

__all__ = [
    "MaxAccumulator",
    "MeanAccumulator",
    "MetricAccumulator",
    "MinAccumulator",
    "SampleAccumulator",
    "State",
    "StdAccumulator",
    "SumAccumulator",
    "accumulator_for",
]


@dataclass(frozen=True, slots=True)
class OwnReduction:
    """What a user's reduction has as its `reduction_type`: `value` and `accumulator_class`, as `Reduce` has."""

    value: str
    accumulator_class: type[MetricAccumulator]


class MetricAccumulator(ABC):
    """Takes values and becomes one; states of several merge into what one would have become.

    A subclass is a reduction: `record_metric("latency", x, MyAccumulator)`. Its state names it by its `name`, which is
    `self.reduction_type.value` too.

    Attributes:
        is_reset: whether it has taken no value; of one's own what the subclass says. Nothing here asks for it.
    """

    name: ClassVar[str] = ""

    def __init__(self, reduction: Any = None) -> None:
        is_known = isinstance(reduction, (Reduce, Sample))
        own: OwnReduction | None = None if is_known else OwnReduction(self.name, type(self))
        self.reduction_type: Reduce | Sample | OwnReduction = own or reduction
        # Before reset(): the one of a program's own class may say otherwise, and need not set it at all.
        self.is_reset = True
        self.reset()

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        # Not inherited: a subclass of `SumAccumulator` without a name of its own would otherwise take the place of it
        # in KNOWN, under "sum".
        cls.name = cls.__dict__.get("name") or f"{cls.__module__}.{cls.__qualname__}"
        KNOWN[cls.name] = cls

    @abstractmethod
    def append(self, value: Any) -> None:
        """Take a value."""

    @abstractmethod
    def get_value(self) -> Any:
        """Return what the values taken so far become."""

    @abstractmethod
    def get_state(self) -> dict[str, Any]:
        """Return plain data from which `get_reduced_value_from_states` merges."""

    @classmethod
    @abstractmethod
    def get_reduced_value_from_states(cls, states: Sequence[State]) -> Any:
        """Return what the values of all states together become."""

    @abstractmethod
    def reset(self) -> None:
        """Forget all values."""


class SumAccumulator(MetricAccumulator):
    """Sum of all values. An empty one is 0.0, as in torchforge; nothing is recorded of it."""

    name = "sum"
    is_reset: bool
    count: int
    total: float

    def reset(self) -> None:
        self.is_reset, self.count, self.total = True, 0, 0.0

    def append(self, value: Any) -> None:
        self.total += _number_in(value)
        self.is_reset, self.count = False, self.count + 1

    def get_value(self) -> float:
        return self.total

    def get_state(self) -> dict[str, Any]:
        return {"reduction_type": self.name, "total": self.total, "count": self.count}

    @classmethod
    def get_reduced_value_from_states(cls, states: Sequence[State]) -> float:
        return _total([state["sum"] for state in in_our_words(states)])


class MeanAccumulator(MetricAccumulator):
    """Mean of all values of all states; an empty one is 0.0, as in torchforge, and nothing is recorded of it."""

    name = "mean"
    is_reset: bool
    count: int
    sum: float

    def reset(self) -> None:
        self.is_reset, self.count, self.sum = True, 0, 0.0

    def append(self, value: Any) -> None:
        self.sum += _number_in(value)
        self.is_reset, self.count = False, self.count + 1

    def get_value(self) -> float:
        return self.sum / self.count if self.count else 0.0

    def get_state(self) -> dict[str, Any]:
        return {"reduction_type": self.name, "sum": self.sum, "count": self.count}

    @classmethod
    def get_reduced_value_from_states(cls, states: Sequence[State]) -> float:
        count = sum(state["count"] for state in states)
        return _total([state["sum"] for state in states]) / count if count else 0.0


class MaxAccumulator(MetricAccumulator):
    """Largest value; NaN if any is. An empty one is -inf, as in torchforge, and nothing is recorded of it."""

    name = "max"
    is_reset: bool
    count: int
    max_val: float

    def reset(self) -> None:
        self.is_reset, self.count, self.max_val = True, 0, -math.inf

    def append(self, value: Any) -> None:
        self.max_val = _largest((self.max_val, _number_in(value)))
        self.is_reset, self.count = False, self.count + 1

    def get_value(self) -> float:
        return self.max_val

    def get_state(self) -> dict[str, Any]:
        return {"reduction_type": self.name, "max_val": self.max_val, "count": self.count}

    @classmethod
    def get_reduced_value_from_states(cls, states: Sequence[State]) -> float:
        return _largest([state["max"] for state in in_our_words(states)])


class MinAccumulator(MetricAccumulator):
    """Smallest value; NaN if any is. An empty one is inf, as in torchforge, and nothing is recorded of it."""

    name = "min"
    is_reset: bool
    count: int
    min_val: float

    def reset(self) -> None:
        self.is_reset, self.count, self.min_val = True, 0, math.inf

    def append(self, value: Any) -> None:
        self.min_val = _smallest((self.min_val, _number_in(value)))
        self.is_reset, self.count = False, self.count + 1

    def get_value(self) -> float:
        return self.min_val

    def get_state(self) -> dict[str, Any]:
        return {"reduction_type": self.name, "min_val": self.min_val, "count": self.count}

    @classmethod
    def get_reduced_value_from_states(cls, states: Sequence[State]) -> float:
        return _smallest([state["min"] for state in in_our_words(states)])


class StdAccumulator(MetricAccumulator):
    """Of the population, by Chan's formula: sums of squares lose what small deviations of large values have."""

    name = "std"
    is_reset: bool
    count: int
    mean: float
    m2: float

    @property
    def sum(self) -> float:
        """Of the values, as torchforge has it."""
        return self.mean * self.count

    @property
    def sum_sq(self) -> float:
        """Of the squares of the values, as torchforge has it."""
        # The sum of squares is count·variance + count·mean², and m2 is count·variance.
        return self.m2 + self.mean * self.sum

    def reset(self) -> None:
        self.is_reset = True
        self.count, self.mean, self.m2 = 0, 0.0, 0.0

    def append(self, value: Any) -> None:
        self.count, self.mean, self.m2 = _chan((self.count, self.mean, self.m2), (1, _number_in(value), 0.0))
        self.is_reset = False

    def get_value(self) -> float:
        return _deviation((self.count, self.mean, self.m2))

    def get_state(self) -> dict[str, Any]:
        """Return the exact moments, and beside them torchforge's sums."""
        theirs = {"sum": self.sum, "sum_sq": self.sum_sq}
        return {"reduction_type": self.name, "count": self.count, "mean": self.mean, "m2": self.m2, **theirs}

    @classmethod
    def get_reduced_value_from_states(cls, states: Sequence[State]) -> float:
        moments = 0, 0.0, 0.0
        for state in in_our_words(states):
            moments = _chan(moments, (state["count"], state["mean"], state["m2"]))
        return _deviation(moments)


_Moments = tuple[int, float, float]


def _chan(one: _Moments, other: _Moments) -> _Moments:
    if not one[0] or not other[0]:
        return one if one[0] else other  # the square of a distance of 1e200 is infinite, and times a count of 0 NaN
    count = one[0] + other[0]
    distance = other[1] - one[1]
    mean = one[1] + distance * other[0] / count
    return count, mean, one[2] + other[2] + distance * distance * one[0] * other[0] / count


def _deviation(moments: _Moments) -> float:
    count, mean, m2 = moments
    # An infinite value makes the mean infinite or NaN. torchforge computes inf - inf there, and returns max(0.0, NaN),
    # which is 0.
    if not math.isfinite(mean):
        return math.nan
    return math.sqrt(m2 / count) if count else 0.0


def _total(values: Sequence[float]) -> float:
    try:
        return math.fsum(values)
    except (OverflowError, ValueError):  # too large for a float, or inf and -inf: what adding them up makes of it
        return sum(values, 0.0)


def _largest(values: Sequence[float]) -> float:
    return math.nan if any(map(math.isnan, values)) else max(values, default=-math.inf)


def _smallest(values: Sequence[float]) -> float:
    # max() and its NaN rule serve both ways: -max(-x) is min(x), the negative of NaN is NaN, and of no values the
    # result is inf.
    return -_largest([-value for value in values])


def _number_in(value: Any) -> float:
    """Return a number, also that of an array or a tensor with one element."""
    return float(value.item() if hasattr(value, "item") else value)


class SampleAccumulator(MetricAccumulator):
    """The best and the worst dictionaries by a number they hold; at most `top_k + bottom_k` are kept."""

    name = "sample"

    def __init__(self, reduction: Any = None) -> None:
        self.sample: Sample = reduction if isinstance(reduction, Sample) else Sample()
        super().__init__(reduction)

    def reset(self) -> None:
        """Forget all samples."""
        self._numbers = itertools.count()
        self._top: list[tuple[float, int, Mapping[str, Any]]] = []
        self._bottom: list[tuple[float, int, Mapping[str, Any]]] = []

    def append(self, value: Mapping[str, Any]) -> None:
        """Take a dictionary; one without a number to rank it by is reported and left out."""
        number = _number(value.get(self.sample.by) if isinstance(value, Mapping) else None)
        if number is None:
            say(
                "compat-forge",
                f"A sample has no number {self.sample.by!r}, so it is neither the best nor the worst. "
                f"Record a dictionary with {self.sample.by!r}, or name another key: Sample(by=…).",
            )
            return
        # Both heaps have their worst entry first, which the next better one pushes out. Of samples with the same
        # number the earlier one stays: its -place is the larger.
        place = next(self._numbers)
        _keep(self._top, (number, -place, value), self.sample.top_k)
        _keep(self._bottom, (-number, -place, value), self.sample.bottom_k)

    def get_value(self) -> list[Mapping[str, Any]]:
        """Return the kept dictionaries, best first, each once."""
        return self.get_reduced_value_from_states([self.get_state()])

    def get_state(self) -> dict[str, Any]:
        """Return what was kept, with the numbers it is ranked by."""
        # A sample may be in both heaps, as where there is only one. Its place, the same in both, is here once.
        kept = {place: (number, sample) for number, place, sample in self._top}
        kept.update({place: (-number, sample) for number, place, sample in self._bottom})
        settings = {"top_k": self.sample.top_k, "bottom_k": self.sample.bottom_k}
        return {"reduction_type": self.name, **settings, "kept": list(kept.values())}

    @classmethod
    def get_reduced_value_from_states(cls, states: Sequence[State]) -> list[Mapping[str, Any]]:
        """Return the best and the worst of all states."""
        kept = sorted((pair for state in states for pair in state["kept"]), key=lambda pair: pair[0], reverse=True)
        top = max((state["top_k"] for state in states), default=0)
        bottom = max((state["bottom_k"] for state in states), default=0)
        # Best first, so these are the first `top` and the last `bottom`; with fewer samples than that the two overlap,
        # and each sample is there once.
        return [sample for place, (_, sample) in enumerate(kept) if place < top or place >= len(kept) - bottom]


def _keep(heap: list[tuple[float, int, Any]], entry: tuple[float, int, Any], most: int) -> None:
    if len(heap) < most:
        heapq.heappush(heap, entry)
    elif most:
        heapq.heappushpop(heap, entry)  # numbers and places differ: what they rank is never compared


def _number(value: Any) -> float | None:
    try:
        number = _number_in(value)
    except (TypeError, ValueError):
        return None
    return None if math.isnan(number) else number


def accumulator_for(reduction: Reduce | Sample | type[MetricAccumulator]) -> MetricAccumulator:
    """Return a new accumulator for a reduction that otel_ml's service does not know."""
    if isinstance(reduction, Sample):
        return SampleAccumulator(reduction)
    return (reduction.accumulator_class if isinstance(reduction, Reduce) else reduction)(reduction)
