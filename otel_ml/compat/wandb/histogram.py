"""`wandb.Histogram`: how values are distributed, counted by the program or here."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import otel_ml
from otel_ml._internal.safe_repr import safe_repr
from otel_ml.compat.tracking.not_kept import not_kept
from otel_ml.compat.wandb.frozen import frozen
from otel_ml.compat.wandb.media import Media

__all__ = ["Histogram"]

_USUAL_BINS = 64


class Histogram(Media):
    """A distribution: of a sequence, or counted already (`np_histogram=(counts, edges)`).

    Args:
        sequence: the values.
        np_histogram: what `numpy.histogram()` returns.
        num_bins: how many bins of equal width there are, their edges, or the name of one of numpy's rules (`"auto"`).
    """

    MAX_LENGTH = 512
    """Most bins of a histogram of W&B."""

    def __init__(self, sequence: Any = None, np_histogram: Any = None, num_bins: Any = _USUAL_BINS) -> None:
        self._sequence = frozen(sequence)
        self._counted = None if np_histogram is None else _checked(frozen(np_histogram))
        self._bins = _USUAL_BINS
        if isinstance(num_bins, Integral):  # a number of numpy, too
            self._bins = min(int(num_bins), self.MAX_LENGTH)
            if int(num_bins) > self.MAX_LENGTH:
                not_kept(f"wandb.Histogram(num_bins={num_bins})", f"ValueError: it has at most {self.MAX_LENGTH} bins.")
        elif self._counted is None:
            self._counted = _by_edges_or_rule(self._sequence, num_bins)

    @property
    def histogram(self) -> list[Any]:
        """How many values each bin has."""
        return list(self._parts()[0])

    @property
    def bins(self) -> list[Any]:
        """The edges of the bins: one more than there are bins."""
        return list(self._parts()[1])

    def _parts(self) -> Any:
        import numpy as np

        if self._counted is not None:
            return tuple(part.tolist() if hasattr(part, "tolist") else part for part in self._counted)
        counts, edges = np.histogram(self._sequence, bins=self._bins)
        return counts.tolist(), edges.tolist()

    def keep(self, name: str, step: int | None, axis: str | None) -> None:
        """Record it as a histogram."""
        if self._counted is not None:
            counts, edges = self._counted
            otel_ml.log_histogram(name, counts, edges=edges, step=step, axis=axis)
        else:
            otel_ml.log_histogram(name, self._sequence, bins=self._bins, step=step, axis=axis)


def _by_edges_or_rule(sequence: Any, num_bins: Any) -> tuple[Any, Any] | None:
    """Return counts and edges; None where numpy cannot tell them, which is said."""
    import numpy as np

    call = f"wandb.Histogram(num_bins={safe_repr(num_bins)})"
    try:
        counts, edges = np.histogram(sequence, bins=num_bins)
    except Exception as error:  # noqa: BLE001 (whatever the program has given)
        not_kept(call, f"{type(error).__name__}: {error}. It has {_USUAL_BINS} bins.")
        return None
    if len(counts) > Histogram.MAX_LENGTH:
        not_kept(call, f"ValueError: it has at most {Histogram.MAX_LENGTH} bins. It has {_USUAL_BINS}.")
        return None
    return counts, edges


def _checked(counted: Any) -> tuple[Any, Any]:
    """Return counts and edges; said where there is not one edge more than counts, and as many as there can be."""
    counts, edges = (*counted, (), ())[:2]
    if not (hasattr(counts, "__len__") and hasattr(edges, "__len__")):
        not_kept("wandb.Histogram(np_histogram=…)", "ValueError: expected (counts, edges). It has no bins.")
        return (), ()
    if len(edges) == len(counts) + 1:
        return counts, edges
    wrong = f"ValueError: len(bins) must be len(histogram) + 1; they are {len(edges)} and {len(counts)}."
    not_kept("wandb.Histogram(np_histogram=…)", f"{wrong} The first bins are kept.")
    kept = max(0, min(len(counts), len(edges) - 1))
    return counts[:kept], edges[: kept + 1]
