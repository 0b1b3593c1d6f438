"""Small plain tensors in the host's memory, looked at by compiled code, where there is any and torch lets it.

With cold caches each of torch's functions and each of its tensors costs some 5 µs, whatever it works on. Here there is
one call for all of them, and no tensor but those that the program has.
"""

from __future__ import annotations

from functools import cache
from types import ModuleType
from typing import Any, NamedTuple

from otel_ml._internal.native import native

__all__ = [
    "MOST_OF_EXTENT",
    "MOST_OF_SUMS",
    "Extent",
    "Statistics",
    "Sums",
    "code_for_tensors",
    "extent_of_small",
    "statistics_of_small",
    "sums_of_small",
]

MOST_OF_SUMS = 2**22
"""Elements up to which a tensor is small. Sums over 2¹⁸ numbers of 32 bits take 0.1 ms of one thread and over 2²² 2.5,
where three of torch's functions take 0.4 and 19; torch has as many threads as it likes."""

MOST_OF_EXTENT = 2**17
"""The same for means and ends, which torch knows from one look: from here on it is quicker (0.05 ms)."""


class Statistics(NamedTuple):
    """Of the elements of tensors, in their order; all 0 of one that has none.

    Attributes:
        sizes: how many there are.
        squares: sums of their squares.
        zeros: how many are 0.
        largest: the largest absolute ones; NaN where any is.
    """

    sizes: list[int]
    squares: list[float]
    zeros: list[int]
    largest: list[float]


class Extent(NamedTuple):
    """What ranks pool of many values: numbers, or 0-d tensors that are not waited for."""

    mean: Any
    number: Any
    min: Any
    max: Any


class Sums(NamedTuple):
    """Of the elements of all tensors together: this rank's share, so that all ranks together count each copy once.

    Attributes:
        elements: how many there are.
        square: sum of their squares.
        zeros: how many are 0.
        largest: the largest absolute one; NaN where any is.
        bad: tensors with a NaN or Inf.
    """

    elements: float
    square: float
    zeros: float
    largest: float
    bad: int


def statistics_of_small(tensors: list[Any]) -> Statistics | None:
    """Look at tensors if all are small and plain, whether or not they need gradients; else return None.

    That is decided anew each time, tensor by tensor: one may be moved, cut or replaced between two steps.
    """
    code = code_for_tensors()
    found = None if code is None else code.statistics(tensors, MOST_OF_SUMS)
    return None if found is None else Statistics(*found)


def sums_of_small(tensors: list[Any], share: float) -> Sums | None:
    """Return sums over them, if `statistics_of_small()` looks at them; each counts as `share` of one in the job."""
    code = code_for_tensors()
    found: Sums | None = None if code is None else code.sums(tensors, MOST_OF_SUMS, share, Sums)
    return found


def extent_of_small(tensor: Any) -> Extent | None:
    """Return the extent of the elements; None unless the tensor is small and plain, and has any.

    Where one is NaN all but the number are.
    """
    code = code_for_tensors()
    found: Extent | None = None if code is None else code.extent(tensor, MOST_OF_EXTENT, Extent)
    return found


@cache
def code_for_tensors() -> ModuleType | None:
    """Return the compiled code, once it knows torch; None where there is none, or torch does not let it look."""
    import torch

    exchange = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)  # which not every torch has
    if native is None or exchange is None:
        return None
    try:
        native.bind_tensors(torch.Tensor, torch.nn.Parameter, exchange)
    except ValueError:  # of another DLPack than the code was written for
        return None
    return native
