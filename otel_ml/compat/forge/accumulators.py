"""States that merge exactly: the extension point for reductions of one's own, and the samples' heaps."""

# ruff: noqa: D102 (what a method does is reported once, in `MetricAccumulator`)
from __future__ import annotations

import heapq
import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from otel_ml.compat.forge.metric import Metric, Reduce, Sample
from otel_ml.compat.forge.states import KNOWN, State, in_our_words
from otel_ml.exceptions import ConfigError
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
    "merged_metrics",
    "reduce_metrics_states",
    "say_failed",
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
        is_reset: True until a subclass says otherwise; nothing here asks for it.
    """

    name: ClassVar[str] = ""

    def __init__(self, reduction: Any = None) -> None:
        is_known = isinstance(reduction, (Reduce, Sample))
        own: OwnReduction | None = None if is_known else OwnReduction(self.name, type(self))
        self.reduction_type: Reduce | Sample | OwnReduction = own or reduction
        self.is_reset = True
        self.reset()

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
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
    count: int
    total: float

    def reset(self) -> None:
        self.count, self.total = 0, 0.0

    def append(self, value: Any) -> None:
        self.count += 1
        self.total += float(value)

    def get_value(self) -> float:
        return self.get_reduced_value_from_states([self.get_state()]) or 0.0

    def get_state(self) -> dict[str, Any]:
        return {"reduction_type": self.name, "total": self.total, "count": self.count}

    @classmethod
    def get_reduced_value_from_states(cls, states: Sequence[State]) -> float | None:
        used = [state for state in in_our_words(states) if state["count"]]
        return math.fsum(state["sum"] for state in used) if used else None


class MeanAccumulator(SumAccumulator):
    """Mean of all values of all states; an empty one is 0.0, as in torchforge, and nothing is recorded of it."""

    name = "mean"

    def get_state(self) -> dict[str, Any]:
        return {"reduction_type": self.name, "sum": self.total, "count": self.count}

    @classmethod
    def get_reduced_value_from_states(cls, states: Sequence[State]) -> float | None:
        count = sum(state["count"] for state in states)
        return math.fsum(state["sum"] for state in states) / count if count else None


class MaxAccumulator(MetricAccumulator):
    """Largest value; NaN if any is. An empty one is -inf, as in torchforge, and nothing is recorded of it."""

    name = "max"
    choose: ClassVar[Any] = max
    empty: ClassVar[float] = -math.inf

    def reset(self) -> None:
        self.value: float | None = None

    def append(self, value: Any) -> None:
        number = float(value)
        self.value = number if self.value is None else self._extreme([self.value, number])

    def get_value(self) -> float:
        return self.empty if self.value is None else self.value

    def get_state(self) -> dict[str, Any]:
        return {"reduction_type": self.name, f"{self.name}_val": self.value}

    @classmethod
    def _extreme(cls, values: Sequence[float]) -> float:
        return math.nan if any(map(math.isnan, values)) else float(cls.choose(values))

    @classmethod
    def get_reduced_value_from_states(cls, states: Sequence[State]) -> float | None:
        values = [state[cls.name] for state in in_our_words(states) if state[cls.name] is not None]
        return cls._extreme(values) if values else None


class MinAccumulator(MaxAccumulator):
    """Smallest value; NaN if any is. An empty one is inf, as in torchforge, and nothing is recorded of it."""

    name = "min"
    choose: ClassVar[Any] = min
    empty: ClassVar[float] = math.inf


class StdAccumulator(MetricAccumulator):
    """Of the population, by Chan's formula: sums of squares lose what small deviations of large values have."""

    name = "std"
    count: int
    mean: float
    m2: float

    def reset(self) -> None:
        self.count, self.mean, self.m2 = 0, 0.0, 0.0

    def append(self, value: Any) -> None:
        self.count, self.mean, self.m2 = _chan((self.count, self.mean, self.m2), (1, float(value), 0.0))

    def get_value(self) -> float:
        return self.get_reduced_value_from_states([self.get_state()]) or 0.0

    def get_state(self) -> dict[str, Any]:
        """Return the exact moments, and beside them torchforge's sums."""
        total = self.mean * self.count
        theirs = {"sum": total, "sum_sq": self.m2 + self.mean * total}
        return {"reduction_type": self.name, "count": self.count, "mean": self.mean, "m2": self.m2, **theirs}

    @classmethod
    def get_reduced_value_from_states(cls, states: Sequence[State]) -> float | None:
        count, mean, m2 = 0, 0.0, 0.0
        for state in in_our_words(states):
            count, mean, m2 = _chan((count, mean, m2), (state["count"], state["mean"], state["m2"]))
        return math.sqrt(m2 / count) if count else None


_Moments = tuple[int, float, float]


def _chan(one: _Moments, other: _Moments) -> _Moments:
    count = one[0] + other[0]
    if not count:
        return one
    distance = other[1] - one[1]
    mean = one[1] + distance * other[0] / count
    return count, mean, one[2] + other[2] + distance * distance * one[0] * other[0] / count


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
        place = next(self._numbers)
        _keep(self._top, (number, -place, value), self.sample.top_k)
        _keep(self._bottom, (-number, -place, value), self.sample.bottom_k)

    def get_value(self) -> list[Mapping[str, Any]]:
        """Return the kept dictionaries, best first, each once."""
        return self.get_reduced_value_from_states([self.get_state()])

    def get_state(self) -> dict[str, Any]:
        """Return what was kept, with the numbers it is ranked by."""
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
        return [sample for place, (_, sample) in enumerate(kept) if place < top or place >= len(kept) - bottom]


def _keep(heap: list[tuple[float, int, Any]], entry: tuple[float, int, Any], most: int) -> None:
    if len(heap) < most:
        heapq.heappush(heap, entry)
    elif most:
        heapq.heappushpop(heap, entry)  # numbers and places differ: what they rank is never compared


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return None if math.isnan(number) else number


def accumulator_for(reduction: Reduce | Sample | type[MetricAccumulator]) -> MetricAccumulator:
    """Return a new accumulator for a reduction that otel_ml's service does not know."""
    if isinstance(reduction, Sample):
        return SampleAccumulator(reduction)
    return (reduction.accumulator_class if isinstance(reduction, Reduce) else reduction)(reduction)


def say_failed(key: str, error: Exception) -> None:
    """Say that a reduction failed with a value or a state."""
    say(
        "compat-forge",
        f"Metric {key!r} is not recorded: its reduction failed with {type(error).__name__}: {error}. "
        "The others are; correct the reduction or the value.",
    )


def reduce_metrics_states(states: Sequence[Mapping[str, State]]) -> list[Metric]:
    """Merge the states of several processes exactly, key by key.

    Raises:
        ConfigError: a ValueError; processes disagree about the reduction of a key. A flush goes on, see
            `merged_metrics()`.
    """
    for key in _keys(states):
        kinds = list(_by_kind(key, states))
        if len(kinds) > 1:
            named = " vs ".join(kinds)
            wrong = f"Mismatched reduction types for key {key!r}: {named}. Give it one of them."
            raise ConfigError(wrong, slug="compat-forge")
    return merged_metrics(states)


def merged_metrics(states: Sequence[Mapping[str, State]]) -> list[Metric]:
    """Merge the states of several processes exactly, key by key; never raises.

    A key whose processes disagree about its reduction becomes one metric for each, `key/<reduction>`: said, and no
    reason to lose the others.
    """
    return [metric for key in _keys(states) for metric in _merged(key, states)]


def _keys(states: Sequence[Mapping[str, State]]) -> Iterable[str]:
    return dict.fromkeys(key for state in states for key in state)


def _by_kind(key: str, states: Sequence[Mapping[str, State]]) -> dict[str, list[State]]:
    by_kind: dict[str, list[State]] = {}
    for state in states:
        if key in state:
            by_kind.setdefault(_kind(state[key]["reduction_type"]), []).append(state[key])
    return by_kind


def _merged(key: str, states: Sequence[Mapping[str, State]]) -> Iterator[Metric]:
    by_kind = _by_kind(key, states)
    if len(by_kind) > 1:
        say(
            "compat-forge",
            f"Metric {key!r} has several reductions: {', '.join(sorted(by_kind))}. "
            f"Each is recorded as {key}/<reduction>. Give it one, or two names.",
        )
    for kind, merged in by_kind.items():
        try:
            value = KNOWN[kind].get_reduced_value_from_states(merged)
        except Exception as error:  # noqa: BLE001 (a user's reduction fails in any way)
            say_failed(key, error)
            continue
        if value is not None:
            yield Metric(key if len(by_kind) == 1 else f"{key}/{kind}", value, _reduction_of(kind))


def _kind(reduction: Any) -> str:
    """Return what `KNOWN` calls a reduction that a state names: by its name, or by what has it as `value`."""
    return str(getattr(reduction, "value", reduction))


def _reduction_of(kind: str) -> Reduce | type[MetricAccumulator]:
    return Reduce(kind) if kind in {reduce.value for reduce in Reduce} else KNOWN[kind]
