"""The line of an interval: what happened since the last one."""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from numbers import Real
from typing import Any

__all__ = ["Interval", "console_line", "validation_line"]


@dataclass
class Interval:
    """What is summed between two lines.

    Attributes:
        skipped: iterations the optimizer left out, after an overflow; their losses do not count.
        nan: iterations with a loss that is NaN or infinite, also those left out: an overflow is why they are. The
            losses of the others count, and make the mean NaN.
    """

    iterations: int = 0
    skipped: int = 0
    nan: Any = 0
    totals: dict[str, Any] = field(default_factory=dict)

    def add(self, losses: Mapping[str, Any], *, is_skipped: bool) -> None:
        """Take an iteration; a tensor stays where it is, and nobody waits for it."""
        numbers = {
            name: _of_python(value)
            for name, value in losses.items()
            if isinstance(value, Real) or getattr(value, "ndim", None) == 0
        }
        # NaN where one of them is NaN, or infinite.
        # x·0 is 0 for a finite number and NaN for any other, and a sum keeps the NaN. On a device this is computed
        # there, and so is `odd != odd`: NaN is not equal to itself.
        odd = functools.reduce(operator.add, (value * 0 for value in numbers.values()), 0)
        self.nan = self.nan + (odd != odd)
        self.iterations += 1
        if is_skipped:
            self.skipped += 1
            return
        for name, value in numbers.items():
            self.totals[name] = self.totals.get(name, 0.0) + value

    @property
    def means(self) -> dict[str, float]:
        """The mean of each loss over the iterations that were not skipped; also negative and NaN ones."""
        counted = self.iterations - self.skipped
        return {name: float(total) / counted for name, total in self.totals.items()} if counted else {}


def _of_python(value: Any) -> Any:
    """Return a number of numpy as one of Python: added to a tensor on a device it would ask that for its value."""
    return value.item() if hasattr(value, "item") and not hasattr(value, "detach") and value.size == 1 else value


def console_line(iteration: int, train_iters: int | None, interval: Interval, shown: Mapping[str, str]) -> str:
    """Return the line: `[time] iteration 100/ 1000 | … |`.

    Args:
        iteration: the last of the interval.
        train_iters: how many there will be.
        interval: what it sums.
        shown: title → value, in order: those before the losses, then `losses` in place of them, then those after.
    """
    # Megatron's form: eight digits each.
    whole = f"{iteration:8d}/{train_iters:8d}" if train_iters else f"{iteration:8d}"
    now = datetime.now().strftime("%Y-%m-%d %H:%M:%S")  # noqa: DTZ005 (local time, for a reader)
    parts = [f"[{now}] iteration {whole}"]
    for title, value in shown.items():
        if title == "losses":
            parts += [f"{name}: {mean:.6E}" for name, mean in interval.means.items()]
        else:
            parts.append(f"{title}: {value}")
    parts.append(f"number of skipped iterations: {interval.skipped:3d}")
    parts.append(f"number of nan iterations: {int(interval.nan):3d}")
    return " | ".join(parts) + " |"


def validation_line(prefix: str, losses: Mapping[str, float], perplexities: Mapping[str, float]) -> str:
    """Return ` validation loss at <prefix> | lm loss value: … | lm loss PPL: … | `."""
    parts = [f" validation loss at {prefix}"]
    for name, value in losses.items():
        parts += [f"{name} value: {float(value):.6E}", f"{name} PPL: {perplexities[name]:.6E}"]
    return " | ".join(parts) + " | "
