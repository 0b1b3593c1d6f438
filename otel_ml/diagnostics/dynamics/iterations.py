"""Iterations that were skipped or whose loss is NaN, consumed and skipped samples, the average loss of an interval."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from otel_ml.diagnostics.measure import Measure, Measures
from otel_ml.diagnostics.small_tensors import extent_of_small
from otel_ml.exceptions import ConfigError
from otel_ml.never_raises import never_raises

__all__ = ["MEASURES", "Iterations"]

_SAME = ("max",)

MEASURES = Measures(
    Measure("train/consumed_samples", "{sample}", _SAME, "Samples consumed since the first start.", "last"),
    Measure("train/skipped_samples", "{sample}", _SAME, "Samples that were skipped.", "last"),
    Measure("train/skipped_iterations", "{step}", _SAME, "Iterations without an update.", "last"),
    Measure("train/nan_iterations", "{step}", _SAME, "Iterations whose loss was NaN or Inf.", "last"),
    Measure("train/loss_average", "1", ("mean",), "Mean loss of an interval's good iterations."),
)
"""What is recorded, by name."""


class Iterations:
    """Counts iterations on this rank; counts of device tensors are kept on the device.

    Args:
        interval: steps between two values of `train/loss_average`.
        state: what `state()` returned before a restart.

    Raises:
        ConfigError: `interval` is not a number of steps, or `state` is not one.

    Examples:
        ```python
        iterations = Iterations(interval=100)
        iterations.step(loss, samples=global_batch, skipped=found_inf)
        ```
    """

    _COUNTS = ("consumed", "skipped_samples", "skipped", "nan")

    def __init__(self, *, interval: int = 100, state: Mapping[str, float] | None = None) -> None:
        problems = []
        if not isinstance(interval, int) or interval < 1:
            problems.append(f"Iterations: interval: expected a number of steps from 1 on, got {interval!r}.")
        if state is not None and set(state) != set(self._COUNTS):
            problems.append(f"Iterations: state: expected what state() returned, got {state!r:.80}.")
        if problems:
            raise ConfigError(*problems)
        known = state or dict.fromkeys(self._COUNTS, 0)
        self._consumed, self._skipped_samples, self._skipped, self._nan = (known[name] for name in self._COUNTS)
        self._interval = interval
        self._steps = 0
        self._sum: Any = 0.0
        self._good: Any = 0.0

    @never_raises
    def step(self, loss: Any, *, samples: int = 0, skipped_samples: int = 0, skipped: Any = False) -> None:
        """Count one iteration.

        Args:
            loss: a number or 0-d tensor.
            samples: consumed by the job.
            skipped_samples: left out by the job, because of bad data or while it ramps up.
            skipped: whether the optimizer made no update; a 0-d tensor such as a gradient scaler's `found_inf` works.
        """
        bad, finite = _checked(_number(loss))
        skip = 0.0 if skipped is False else _number(skipped)
        # 1 or 0; of tensors the product is one, too, and nothing is asked of the device.
        good = (1 - bad) * (1 - skip)
        self._consumed += samples
        self._skipped_samples += skipped_samples
        self._skipped = self._skipped + skip
        self._nan = self._nan + bad
        # `finite` is 0 where the loss is NaN: 0 · NaN would be NaN in the sum.
        self._sum = self._sum + finite * good
        self._good = self._good + good
        self._steps += 1
        self._record()

    def state(self) -> dict[str, float]:
        """Return what a checkpoint keeps; waits for the device where counts are there."""
        counts = (self._consumed, self._skipped_samples, self._skipped, self._nan)
        return {name: float(count) for name, count in zip(self._COUNTS, counts, strict=True)}

    def _record(self) -> None:
        MEASURES.record(
            {
                "train/consumed_samples": self._consumed,
                "train/skipped_samples": self._skipped_samples,
                "train/skipped_iterations": self._skipped,
                "train/nan_iterations": self._nan,
            }
        )
        if self._steps % self._interval == 0:
            # Without a good iteration the weight is 0, and the average absent.
            at_least_one = self._good.clamp(min=1) if hasattr(self._good, "clamp") else max(self._good, 1)
            MEASURES["train/loss_average"].record(self._sum / at_least_one, weight=self._good)
            self._sum = self._good = 0.0


_NUMBERS = (float, bool, int)


def _number(value: Any) -> Any:
    """Return a number, or the tensor on a device that will have it."""
    if type(value) in _NUMBERS or not hasattr(value, "detach"):
        return float(value)
    # A tensor of one element in the host's memory: its smallest element is its value, which compiled code reads in one
    # call.
    small = extent_of_small(value)
    if small is not None and small.number == 1:
        return small.min
    value = value.detach()
    return float(value) if value.device.type == "cpu" else value.float()


def _checked(loss: Any) -> tuple[Any, Any]:
    """Return 1 where the loss is NaN or Inf, else 0; and the loss, 0 where it is that."""
    if isinstance(loss, float):
        return (0.0, loss) if abs(loss) < math.inf else (1.0, 0.0)
    return (~loss.isfinite()).float(), loss.nan_to_num(0.0, 0.0, 0.0)
