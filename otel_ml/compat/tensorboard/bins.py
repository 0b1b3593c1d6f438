"""The bins of a histogram that a program chooses: edges, a rule of numpy's, and how many there may be."""

from __future__ import annotations

from typing import Any

from otel_ml.compat.tracking.as_array import as_array

__all__ = ["USUAL_BINS", "counted", "edges_of_tensorboard"]

USUAL_BINS = 64
"""Of a histogram of which nothing else is said: TensorBoard's 1,500 are of exponential width, and mostly empty."""


def counted(values: Any, bins: Any, max_bins: int | None) -> tuple[Any, Any]:
    """Return the counts between edges; of more than `max_bins` several become one, as torch makes them.

    Raises:
        ValueError: numpy has no such bins.
    """
    import numpy as np

    counts, edges = np.histogram(np.ravel(as_array(values)), bins=bins)
    if max_bins is None or len(counts) <= max_bins:
        return counts, edges
    # A whole number of bins become one, as in torch: fewer than twice `max_bins` stay as they are.
    first = np.arange(0, len(counts), len(counts) // max_bins)
    return np.add.reduceat(counts, first), np.append(edges[first], edges[-1])


def edges_of_tensorboard() -> list[float]:
    """Return TensorBoard's edges: from 1e-12 to 1e20 each the tenth part wider, as many below 0, and 0."""
    # The same product, step by step, as in TensorBoard: 1.1**n would differ from its edges in the last digits.
    above, edge = [], 1e-12
    while edge < _LAST_EDGE:
        above.append(edge)
        edge *= 1.1
    return [*(-edge for edge in reversed(above)), 0, *above]


_LAST_EDGE = 1e20
