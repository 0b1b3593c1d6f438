"""Which axis metrics are drawn over: training steps, or a step metric of their own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from otel_ml.compat.tracking.as_number import plain_float
from otel_ml.warn_once import say
from otel_ml.wire.published_name import matches

__all__ = ["Place", "StepMetrics"]

Place = tuple[int, str | None]
"""Step and axis; None is the axis of training steps."""


class StepMetrics:
    """The step metrics that `define_metric()` named, and the last value of each."""

    def __init__(self) -> None:
        self._declared: dict[str, str] = {}
        self._latest: dict[str, int] = {}

    def declare(self, pattern: str, step_metric: str) -> None:
        """Draw metrics whose names match `pattern` over `step_metric`."""
        self._declared[pattern] = step_metric

    def placed(
        self, metrics: Mapping[str, Any], step: int, prefix: str, step_metric: str | None
    ) -> Iterator[tuple[Place, Mapping[str, Any]]]:
        """Yield the metrics of one call by place; `metrics` have their full names."""
        if step_metric and step_metric in metrics:
            index = _whole(metrics[step_metric])
            if index is None:
                say(
                    "bad-step",
                    f"log_metrics(step_metric={step_metric!r}): expected values that are whole numbers from 0 on, "
                    f"got a {type(metrics[step_metric]).__name__} that is none. Its metrics are at the training step.",
                )
                yield (step, None), metrics
            else:
                yield (index, axis_of(prefix, step_metric)), metrics
            return
        if not self._declared:
            yield (step, None), metrics
            return
        # All of them first: a call may have its step metric behind the metrics that it is for.
        for name in self._declared.values():
            index = _whole(metrics.get(name))
            if index is not None:
                self._latest[name] = index
        by_place: dict[Place | None, dict[str, Any]] = {}
        for name, value in metrics.items():
            by_place.setdefault(self._place(name), {})[name] = value
        for place, placed in by_place.items():
            yield place or (step, None), placed

    def _place(self, name: str) -> Place | None:
        for pattern, step_metric in self._declared.items():
            # Until a step metric has a value its metrics are at the training step.
            if step_metric in self._latest and (name == step_metric or matches(name, pattern)):
                return self._latest[step_metric], axis_of(pattern.partition("*")[0], step_metric)
        return None


def axis_of(family: str, step_metric: str) -> str:
    """Return the axis of a family of metrics: its own prefix, so that published names stay what they are.

    Examples:
        >>> axis_of("ray", "ray/ray_step")
        'ray'
        >>> axis_of("", "ray/ray_step"), axis_of("", "epoch")
        ('ray', 'epoch')
    """
    return family.strip("/") or step_metric.rpartition("/")[0] or step_metric


def _whole(value: Any) -> int | None:
    """Return a whole number from 0 on, also of a float that is one, or None."""
    number = None if isinstance(value, bool) else plain_float(value)
    if number is None:
        return None
    # Beyond 2**53 a float no longer has every whole number.
    return int(number) if 0 <= number < 2**53 and number.is_integer() else None
