"""What every backend must show, computed from the list of everything that was recorded, in exact arithmetic.

Independent of the code under test on purpose: nothing of otel_ml is imported. Sums are `fractions`, so the result of a
mean or a standard deviation is the correctly rounded one; values that are not finite follow IEEE arithmetic.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import pairwise

__all__ = ["Recorded", "counts_in_bins", "expected", "expected_histograms"]


@dataclass(frozen=True)
class Recorded:
    """One value as a process recorded it; `order` is its running number in that process."""

    role: str
    rank: int
    axis: str
    step: int
    name: str
    value: float
    reduction: str
    order: int
    attributes: Mapping[str, str] = field(default_factory=dict)
    weight: float | None = None
    time: float = 0.0
    topology: Mapping[str, int] = field(default_factory=dict)


Values = Sequence[Recorded]


def expected(records: Iterable[Recorded]) -> dict[str, dict[int, float]]:
    """Return published name → step → value, for every scalar that `records` amount to.

    The records of one series must agree on the reduction.
    """
    shown: dict[str, dict[int, float]] = defaultdict(dict)
    for (role, axis, name, attributes, step), group in grouped(records).items():
        for suffix, value in reduced(group).items():
            shown[published(role, axis, name + suffix_after(attributes, suffix))][step] = value
    return dict(shown)


def expected_histograms(records: Iterable[Recorded]) -> dict[str, dict[int, list[float]]]:
    """Return published name → step → the finite values, ascending, that a histogram of that name has in its bins."""
    shown: dict[str, dict[int, list[float]]] = defaultdict(dict)
    for (role, axis, name, attributes, step), group in grouped(records).items():
        group, within, across = stages(group)
        values = sorted(record.value for record in folded(group, within) if math.isfinite(record.value))
        if "histogram" in across and values:
            suffix = "/histogram" if across.index("histogram") else ""
            shown[published(role, axis, name + suffix_after(attributes, suffix))][step] = values
    return dict(shown)


def counts_in_bins(values: Sequence[float], edges: Sequence[float]) -> list[tuple[int, int]]:
    """Return for each bin how many of `values` are surely in it, and how many are, counting those on its edges.

    A sum may be off by the last bit, on either side of an edge.
    """

    def inside(low: float, high: float, by: float) -> int:
        return sum(low + by * abs(low) < value < high - by * abs(high) for value in values)

    return [(inside(low, high, 1e-12), inside(low, high, -1e-12)) for low, high in pairwise(edges)]


Series = tuple[str, str, str, tuple[tuple[str, str], ...], int]
"""Role, axis, name, attributes, step."""


def grouped(records: Iterable[Recorded]) -> dict[Series, list[Recorded]]:
    groups: dict[Series, list[Recorded]] = defaultdict(list)
    for record in records:
        attributes = tuple(sorted(record.attributes.items()))
        groups[record.role, record.axis, record.name, attributes, record.step].append(record)
    return groups


def stages(group: Values) -> tuple[Values, str, list[str]]:
    """Return the records that count, in order, the reduction within a rank, and those across."""
    [reduction] = {record.reduction for record in group}
    body, _, dimension = reduction.partition("@")
    within, _, across = body.rpartition(">")
    group = sorted(group, key=lambda record: (record.rank, record.order))
    return one_rank_a_coordinate(group, dimension) if dimension else group, within, across.split(",")


def suffix_after(attributes: tuple[tuple[str, str], ...], suffix: str) -> str:
    return "".join(f"/{key}/{value}" for key, value in attributes) + suffix


def reduced(group: Values) -> dict[str, float]:
    """Return suffix → value: the first reduction has no suffix, the others their name."""
    group, within, across = stages(group)
    values: dict[str, float] = {}
    for position, one in enumerate(across):
        suffix = "" if position == 0 else f"/{one}"
        if one == "rank":
            values.update(by_rank(group, within))
        elif one != "histogram":
            value = combined(folded(group, within), one)
            if value is not None:
                values[suffix] = value
    return values


def one_rank_a_coordinate(group: Values, dimension: str) -> Values:
    lowest: dict[int, int] = {}
    for record in group:
        coordinate = record.topology[dimension]
        lowest[coordinate] = min(record.rank, lowest.get(coordinate, record.rank))
    return [record for record in group if record.rank == lowest[record.topology[dimension]]]


def by_rank(group: Values, within: str) -> dict[str, float]:
    shown = {}
    for rank, records in ranks_of(group).items():
        value = combined(folded(records, within), "mean")
        if value is not None:
            shown[f"/rank_{rank}"] = value
    return shown


def folded(group: Values, within: str) -> Values:
    """Combine the records of each rank into one, where the reduction has a first stage."""
    if not within:
        return group
    one_each = []
    for records in ranks_of(group).values():
        value = combined(records, within)
        assert value is not None, "weights and a first stage exclude each other"
        newest = max(records, key=lambda record: record.order)
        one_each.append(replace(newest, value=value))
    return one_each


def ranks_of(group: Values) -> dict[int, list[Recorded]]:
    ranks: dict[int, list[Recorded]] = {}
    for record in group:
        ranks.setdefault(record.rank, []).append(record)
    return ranks


def combined(group: Values, name: str) -> float | None:
    """Return one number for `group`, or None where there is none (all weights are 0)."""
    if name == "mean":
        return mean(group)
    if name.startswith("p"):
        return nearest_rank([record.value for record in group], Fraction(name[1:]) / 100)
    return SIMPLE[name](group)


def mean(group: Values) -> float | None:
    weights = [1.0 if record.weight is None else record.weight for record in group]
    total = exact_sum(weights)
    if total == 0:
        return None
    weighted = [record.value for record in group]
    if not all(map(math.isfinite, weighted)):
        return sum(value * weight for value, weight in zip(weighted, weights, strict=True)) / total
    return float(
        sum((Fraction(v) * Fraction(w) for v, w in zip(weighted, weights, strict=True)), Fraction(0)) / Fraction(total)
    )


def exact_sum(values: Iterable[float]) -> float:
    values = list(values)
    if not all(map(math.isfinite, values)):
        return sum(values)
    return float(sum(map(Fraction, values), Fraction(0)))


def deviation(group: Values) -> float:
    values = [record.value for record in group]
    if not all(map(math.isfinite, values)):
        return math.nan
    centre = sum(map(Fraction, values), Fraction(0)) / len(values)
    return math.sqrt(sum(((Fraction(value) - centre) ** 2 for value in values), Fraction(0)) / len(values))


def extreme(choose: Callable[[Iterable[float]], float]) -> Callable[[Values], float]:
    def of(group: Values) -> float:
        values = [record.value for record in group]
        return math.nan if any(map(math.isnan, values)) else choose(values)

    return of


def holder(choose: Callable[[Iterable[float]], float]) -> Callable[[Values], float]:
    """The rank that holds the extreme; of several the lowest."""

    def of(group: Values) -> float:
        value = choose(record.value for record in group)
        return float(min(record.rank for record in group if record.value == value))

    return of


def newest(group: Values) -> float:
    time = max(record.time for record in group)
    rank = min(record.rank for record in group if record.time == time)
    return max((r for r in group if r.rank == rank and r.time == time), key=lambda r: r.order).value


def oldest(group: Values) -> float:
    time = min(record.time for record in group)
    rank = min(record.rank for record in group if record.time == time)
    return min((r for r in group if r.rank == rank and r.time == time), key=lambda r: r.order).value


def nearest_rank(values: Sequence[float], quantile: Fraction) -> float:
    finite = sorted(filter(math.isfinite, values))
    return finite[max(0, math.ceil(quantile * len(finite)) - 1)]


SIMPLE: Mapping[str, Callable[[Values], float]] = {
    "sum": lambda group: exact_sum(record.value for record in group),
    "count": lambda group: float(len(group)),
    "min": extreme(min),
    "max": extreme(max),
    "std": deviation,
    "last": newest,
    "first": oldest,
    "argmax": holder(max),
    "argmin": holder(min),
}


def published(role: str, axis: str, name: str) -> str:
    """Return the name every backend shows (docs/protocol.md §2.10)."""
    text = name if axis in {"step", "time"} or name.startswith(f"{axis}/") else f"{axis}/{name}"
    if role not in {"trainer", "unknown_service"} and not name.startswith(f"{role}/"):
        text = f"{role}/{text}"
    return text
