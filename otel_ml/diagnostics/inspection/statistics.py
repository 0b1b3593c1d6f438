"""Statistics of a tensor, kept so that micro-batches and ranks merge to those of all elements together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from otel_ml.diagnostics.measure import Measure

__all__ = ["STATISTICS", "TensorState", "Value", "empty_values", "measure_of", "state_of"]

STATISTICS = ("min", "max", "mean", "std", "l1_norm", "l2_norm", "cur_amax", "dynamic_range")
"""Names as in NVIDIA's tool; `dynamic_range` is log2 of the largest by the smallest absolute element that is not 0."""


@dataclass(frozen=True, slots=True)
class Value:
    """One statistic of this rank, and how it is recorded.

    Attributes:
        shown: what the rank's own log has.
        records: what is recorded: 0-d tensor, or 1-d tensor of two records.
        weight: of the records, or None.
        reduce: across ranks.
    """

    shown: Any
    records: Any
    weight: Any
    reduce: tuple[str, ...]

    def record(self, name: str, step: int | None) -> None:
        """Record it under `name`."""
        measure_of(name, self.reduce).record(self.records, weight=self.weight, step=step)


def measure_of(name: str, reduce: tuple[str, ...]) -> Measure:
    """Return what a statistic is recorded as."""
    return Measure(name, "1", reduce, "Statistic of a tensor.")


@dataclass(frozen=True, slots=True)
class TensorState:
    """Sums over the elements seen in a step: 0-d float32 tensors on the tensor's device.

    Or rows of them in the host's memory, one for each of several tensors, as kernels have found them.

    Attributes:
        count: elements.
        mean: of them.
        m2: sum of squares of differences from the mean.
        min: smallest.
        max: largest.
        l1: sum of absolute values.
        squares: sum of squares.
        amin: smallest absolute value that is not 0; infinite where all are 0.
    """

    count: Any
    mean: Any
    m2: Any
    min: Any
    max: Any
    l1: Any
    squares: Any
    amin: Any

    def merged(self, other: TensorState) -> TensorState:
        """Return the state of both; Chan's formula, so that no large numbers are subtracted."""
        count = self.count + other.count
        delta = other.mean - self.mean
        return TensorState(
            count=count,
            mean=self.mean + delta * (other.count / count),
            m2=self.m2 + other.m2 + delta * delta * (self.count * other.count / count),
            min=self.min.minimum(other.min),
            max=self.max.maximum(other.max),
            l1=self.l1 + other.l1,
            squares=self.squares + other.squares,
            amin=self.amin.minimum(other.amin),
        )

    def values(self, stats: tuple[str, ...], *, copies: int, parts: int) -> Iterator[tuple[str, Value]]:
        """Yield the statistics.

        Args:
            stats: their names; those that are not ours are left out.
            copies: ranks that hold the same tensor.
            parts: different tensors that all ranks together hold.
        """
        for stat in stats:
            if stat in STATISTICS:
                yield stat, getattr(self, f"_{stat}")(copies, parts)

    def _min(self, copies: int, parts: int) -> Value:
        del copies, parts
        return Value(self.min, self.min, None, ("min",))

    def _max(self, copies: int, parts: int) -> Value:
        del copies, parts
        return Value(self.max, self.max, None, ("max",))

    def _mean(self, copies: int, parts: int) -> Value:
        del copies, parts
        return Value(self.mean, self.mean, self.count, ("mean",))

    def _std(self, copies: int, parts: int) -> Value:
        del copies, parts
        deviation = (self.m2 / self.count).sqrt()
        # mean ± deviation of each rank, as heavy as it has elements: their pooled deviation is that of all elements.
        return Value(deviation, _stacked(self.mean + deviation, self.mean - deviation), self.count / 2, ("std",))

    def _l1_norm(self, copies: int, parts: int) -> Value:
        del parts
        # Each of the ranks with the same elements gives its part: the sum over ranks counts them once.
        return Value(self.l1, self.l1 / copies, None, ("sum",))

    def _l2_norm(self, copies: int, parts: int) -> Value:
        own = self.squares.sqrt()
        spread = own * parts**0.5  # as in otel_ml.diagnostics.dynamics.norms
        return Value(own, _stacked(spread, -spread), None, ("std",))

    def _cur_amax(self, copies: int, parts: int) -> Value:
        del copies, parts
        return Value(self._amax, self._amax, None, ("max",))

    def _dynamic_range(self, copies: int, parts: int) -> Value:
        del copies, parts
        found = self._amax.log2() - self.amin.log2()  # all 0: log2(0) - log2(inf), which is -inf
        return Value(found, found, None, ("max",))

    @property
    def _amax(self) -> Any:
        return self.max.maximum(-self.min)


def state_of(tensor: Any) -> TensorState | None:
    """Return the state of a tensor's elements, or None where it has none; nothing waits for the device."""
    if tensor.numel() == 0:
        return None
    # In half precision the sums round, and beyond 65,504 are infinite; whole numbers have no mean in torch.
    values = tensor.detach().float()
    count = values.numel()
    absolute = values.abs()
    mean = values.mean()
    return TensorState(
        count=count,
        mean=mean,
        m2=(values - mean).square().sum(),
        min=values.min(),
        max=values.max(),
        l1=absolute.sum(),
        squares=values.square().sum(),
        # The smallest magnitude that is not 0: `dynamic_range` takes its logarithm. Where all are 0 it is infinite.
        amin=absolute.masked_fill(absolute == 0, float("inf")).min(),
    )


def empty_values(stats: tuple[str, ...]) -> Iterator[tuple[str, Value]]:
    """Yield the norms of a shard without elements, which are 0; it has no other statistic."""
    if "l1_norm" in stats:
        yield "l1_norm", Value(0.0, 0.0, None, ("sum",))
    if "l2_norm" in stats:
        yield "l2_norm", Value(0.0, [0.0, -0.0], None, ("std",))


def _stacked(*values: Any) -> Any:
    import torch

    return torch.stack(values)
