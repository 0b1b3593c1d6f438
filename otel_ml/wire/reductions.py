"""The table of reductions: what each needs of a writer's records, and what its value is (docs/protocol.md §2.8).

Worker, wire and service read it; what a reduction makes of its statistics across writers is a function of
`otel_ml_service.aggregation.reduce`. CONTRIBUTING says how to add one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from otel_ml.exceptions import WireError
from otel_ml.wire import attributes as wire

__all__ = [
    "ACROSS",
    "DEFAULT",
    "OF_OTHERS",
    "REDUCTIONS",
    "STATISTICS",
    "VALUE_ATTRIBUTES",
    "WITHIN",
    "Row",
    "Statistic",
    "is_quantile",
    "quantile_of",
    "row_of",
]


@dataclass(frozen=True, slots=True, eq=False)
class Statistic:
    """A number that a point tells of the records of one writer.

    Attributes:
        key: attribute of the point that has it; empty where OTLP's Histogram has a field for it.
        called: what a person calls it; empty where every point tells it, or can do without.
        neutral: what it is of no records, so that it changes no other; NaN where it then is not told.
        degree: it grows with this power of the values.
        of: it is the sum of this of each value, times its weight; None where it is none of these.
        least: values below have no `of`, so that there is none of them together.
    """

    key: str = ""
    called: str = ""
    neutral: float = 0.0
    degree: int = 0
    of: Callable[[float], float] | None = None
    least: float = -math.inf

    def term(self, value: float, weight: float) -> float:
        """Return what one value adds to it."""
        return 0.0 if self.of is None or weight == 0.0 else weight * self.of(value)


def _logarithm(value: float) -> float:
    return math.log(value) if value > 0.0 else -math.inf if value == 0.0 else math.nan


COUNT: Final = Statistic()
SUM: Final = Statistic(degree=1)
MIN: Final = Statistic(neutral=math.inf, degree=1)
MAX: Final = Statistic(neutral=-math.inf, degree=1)
M2: Final = Statistic(wire.M2, "spread", degree=2)
WSUM: Final = Statistic(wire.WSUM, neutral=math.nan)
WXSUM: Final = Statistic(wire.WXSUM, neutral=math.nan, degree=1)

LOGS: Final = Statistic("ml.logsum", "logarithms", of=_logarithm, least=0.0)

STATISTICS: Final = (COUNT, SUM, MIN, MAX, M2, WSUM, WXSUM, LOGS)
"""All of them, in the order in which the service keeps them: what has no key comes first."""

VALUE_ATTRIBUTES: Final = frozenset(statistic.key for statistic in STATISTICS if statistic.key)
"""Attributes of a point that are values, not its identity."""


@dataclass(frozen=True, slots=True)
class Row:
    """One reduction.

    Attributes:
        name: as programs and the wire write it.
        needs: statistics that it is made of, besides count and sum.
        point: what a worker sends for it: sums, the first or last record, or buckets.
        edge: which record that is, where it is one.
        within: whether it may combine one writer's records of a step first.
        publishes: one value, one for each rank, or bins.
        scale: whether its value is like those it is made of, has their unit alone, or not even that.
        joined: the value of two parts together, from the values of the parts; None where these do not tell it.
    """

    name: str
    needs: tuple[Statistic, ...] = ()
    point: Literal["moments", "order", "buckets"] = "moments"
    edge: Literal["first", "last"] | None = None
    within: bool = True
    publishes: Literal["value", "ranks", "bins"] = "value"
    scale: Literal["values", "unit", "none"] = "values"
    joined: Callable[[float, float], float] | None = None


def _total(one: float, other: float) -> float:
    return one + other


def _extreme(choose: Callable[[float, float], float]) -> Callable[[float, float], float]:
    """Return what is the extreme of two extremes: of a series with a NaN it is NaN, wherever that stands.

    Examples:
        >>> [_extreme(max)(one, other) for one, other in ((1.0, 2.0), (math.nan, 2.0), (1.0, math.nan))]
        [2.0, nan, nan]
    """
    return lambda one, other: math.nan if math.isnan(one) or math.isnan(other) else choose(one, other)


REDUCTIONS: Final[Mapping[str, Row]] = {
    row.name: row
    for row in (
        Row("mean", (WSUM, WXSUM)),
        Row("sum", scale="unit", joined=_total),
        Row("min", (MIN,), joined=_extreme(min)),
        Row("max", (MAX,), joined=_extreme(max)),
        Row("count", scale="none", joined=_total),
        Row("std", (M2,), scale="unit"),
        Row("geomean", (MIN, MAX, WSUM, LOGS)),
        Row("last", point="order", edge="last"),
        Row("first", point="order", edge="first"),
        Row("histogram", point="buckets", within=False, publishes="bins"),
        Row("rank", (WSUM, WXSUM), within=False, publishes="ranks"),
        Row("argmax", (MAX,), within=False, scale="none"),
        Row("argmin", (MIN,), within=False, scale="none"),
    )
}
"""All but the quantiles, which are `_QUANTILE` under any name `pNN`."""

DEFAULT: Final = "mean"
"""How a metric is reduced where nobody says anything."""

ACROSS: Final = tuple(REDUCTIONS)
"""Reductions across writers, besides the quantiles."""

WITHIN: Final = tuple(name for name, row in REDUCTIONS.items() if row.within)
"""Reductions that may combine one writer's records of a step first."""

_QUANTILE: Final = Row("pNN", point="buckets", within=False)
_QUANTILE_NAME: Final = re.compile(r"p(\d{1,2}(?:\.\d+)?|100)\Z")


OF_OTHERS: Final = {
    "avg": "mean",
    "average": "mean",
    "median": "p50",
    "total": "sum",
    "stddev": "std",
    "latest": "last",
}
"""What others call a reduction → what it is here."""


def row_of(name: str) -> Row | None:
    """Return what is known of a reduction, also of a quantile; None where there is none of that name."""
    row = REDUCTIONS.get(name)
    return row if row is not None or not is_quantile(name) else _QUANTILE


def is_quantile(name: str) -> bool:
    """Whether `name` is a quantile such as `p50` or `p99.9`."""
    return _QUANTILE_NAME.match(name) is not None


def quantile_of(name: str) -> float:
    """Return the quantile in [0, 1] that `name` (`p99`) stands for.

    Examples:
        >>> quantile_of("p95")
        0.95
    """
    match = _QUANTILE_NAME.match(name)
    if match is None:
        raise WireError(f"{name!r} is not a quantile. Write p50, p90, p99.9, …", slug="unknown-reduction")
    return float(match[1]) / 100
