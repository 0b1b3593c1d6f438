"""What is recorded: `Metric`, and the reductions it can have."""

from __future__ import annotations

import time
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from otel_ml.compat.forge.states import KNOWN

if TYPE_CHECKING:
    from otel_ml.compat.forge.accumulators import MetricAccumulator

__all__ = ["Metric", "Reduce", "Sample", "held_value"]


class Reduce(Enum):
    """How the values of a key at a step become one, over all records of all ranks.

    `SAMPLE` takes dictionaries and keeps the best and the worst by `reward`, as a table.
    """

    MEAN = "mean"
    SUM = "sum"
    MAX = "max"
    MIN = "min"
    STD = "std"
    SAMPLE = "sample"

    @property
    def accumulator_class(self) -> type[MetricAccumulator]:
        """The class whose states merge exactly."""
        return KNOWN[self.value]


@dataclass(frozen=True, slots=True)
class Sample:
    """A table of the best and the worst dictionaries: `Reduce.SAMPLE` with other numbers.

    Attributes:
        top_k: best ones kept.
        bottom_k: worst ones kept.
        by: the key whose number they are ranked by.
    """

    top_k: int = 1
    bottom_k: int = 1
    by: str = "reward"


@dataclass(slots=True)
class Metric:
    """One value; what waits for a flush is a copy, so it may be changed and pushed again.

    Attributes:
        timestamp: seconds since 1970, of the record; None, which is now.
        over: topology dimension of which one rank per coordinate counts: ranks that hold copies count once.
    """

    key: str
    value: Any
    reduction: Reduce | Sample | type[MetricAccumulator] = Reduce.MEAN
    timestamp: float | None = None
    over: str | None = None

    def __post_init__(self) -> None:
        if self.timestamp is None:
            self.timestamp = time.time()


def held_value(value: Any) -> Any:
    """Return a value that stays what it is while it waits for a flush; a tensor is copied on its stream."""
    detach = getattr(value, "detach", None)
    if detach is not None:
        return detach().clone()
    # Of arrays and lists. A dictionary is not a number, which is said where it is recorded.
    copy = getattr(value, "copy", None)
    return copy() if copy is not None and not isinstance(value, dict) else value
