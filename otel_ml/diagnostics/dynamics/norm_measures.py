"""What is recorded of gradients and parameters."""

from __future__ import annotations

from functools import cache

from otel_ml.diagnostics.dynamics.held_tensors import Held
from otel_ml.diagnostics.measure import Measure, Measures

__all__ = ["measures", "own_measure", "own_name"]


@cache
def measures(kind: str) -> Measures:
    """Return what is recorded of `grad` or `param`, by the last part of its name."""
    return Measures(
        Measure(f"{kind}/norm", "1", ("std",), "L2 norm over all ranks: the deviation of ±√(ranks/copies)·‖shard‖."),
        Measure(f"{kind}/sum_of_squares", "1", ("sum",), "Sum of squares over all ranks, each copy once."),
        Measure(f"{kind}/mean_square", "1", ("mean",), "Mean square of the elements, over all ranks."),
        Measure(f"{kind}/abs_max", "1", ("max",), "Largest absolute element, over all ranks."),
        Measure(f"{kind}/zeros", "{element}", ("sum",), "Elements that are 0, over all ranks, each copy once."),
        Measure(f"{kind}/zero_fraction", "1", ("mean",), "Elements that are 0, per element."),
        Measure(f"{kind}/nonfinite", "{tensor}", ("max",), "Tensors of a rank with a NaN or Inf."),
        prefix=f"{kind}/",
    )


def own_measure(rows: Measures, one: Held) -> Measure:
    """Return what is recorded of one parameter by itself; `rows` are those of all."""
    name = own_name(one)
    row = rows[name.split("/", 1)[0]]
    return Measure(f"{row.name}/{one.name}", row.unit, row.reduce, row.description)


def own_name(one: Held) -> str:
    """Return what is recorded of one parameter: its sum of squares where nobody knows into how many parts it is cut."""
    return f"norm/{one.name}" if one.shards else f"sum_of_squares/{one.name}"
