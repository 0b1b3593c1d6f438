"""OpenTelemetry's instruments over ours: programs written for `opentelemetry.metrics` need no change."""

from __future__ import annotations

from collections.abc import Mapping
from time import time_ns
from typing import TYPE_CHECKING, Any

from otel_ml._internal.error_reporting import answered, reporter
from otel_ml._internal.record.values import BeingTracedError, UnrecordableError, record_value
from otel_ml._internal.safe_repr import safe_repr
from otel_ml._internal.series.definition import DEFINITIONS, Attributes, identity
from otel_ml._internal.series.reduction_arguments import are_attributes
from otel_ml._internal.signature import public_type, publish

if TYPE_CHECKING:
    from otel_ml._internal.record.meter import Metric

__all__ = ["Counter", "Gauge", "Histogram", "UpDownCounter"]


class _Instrument:
    """Hands what it is given to a metric of ours."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric


@public_type
class Counter(_Instrument):
    """What only grows: tokens, samples, errors."""

    @publish("self", "amount", "attributes", "context")
    @answered
    def add(
        self,
        amount: float,
        attributes: Mapping[str, object] | None = None,
        context: Any = None,
    ) -> None:
        """Add to the current step."""
        self._metric.record(amount, attributes)


@public_type
class UpDownCounter(_Instrument):
    """A level that is told by its changes: queue length, open episodes."""

    def __init__(self, metric: Metric) -> None:
        super().__init__(metric)
        self._levels: dict[Attributes, float] = {}

    @publish("self", "amount", "attributes", "context")
    @answered
    def add(
        self,
        amount: float,
        attributes: Mapping[str, object] | None = None,
        context: Any = None,
    ) -> None:
        """Change the level, and record the new one at the current step."""
        change = _number(amount)
        if change is None or not are_attributes(attributes, "add()", 1):
            return
        key = identity({} if attributes is None else attributes)
        # The moment under the lock, by which the last record of a step is its newest level, whatever threads add. Not
        # the record itself: it may wait for a slow receiver, and all look-ups of names would wait for the lock.
        with DEFINITIONS.lock:
            level = self._levels[key] = self._levels.get(key, 0) + change
            now_ns = time_ns()
        self._metric._record_at(level, attributes, now_ns)  # noqa: SLF001 (a user is to find no such verb)


def _number(amount: object) -> float | None:
    """Return by how much a level changes; None (counted, said) where nobody can tell."""
    try:
        found = record_value(amount)
    except (UnrecordableError, BeingTracedError):
        found = None
    # A list, and what a device has yet to give, say no single change of a level.
    if isinstance(found, float):
        return found
    got = safe_repr(amount)
    reporter.drop(
        "bad_value", f"add(): expected a number in CPU memory, got {got}. Call add(1).", kind="amount of add()"
    )
    return None


@public_type
class Histogram(_Instrument):
    """Values of which the distribution matters: latencies, lengths."""

    @publish("self", "amount", "attributes", "context")
    @answered
    def record(
        self,
        amount: float,
        attributes: Mapping[str, object] | None = None,
        context: Any = None,
    ) -> None:
        """Record a value at the current step."""
        self._metric.record(amount, attributes)


@public_type
class Gauge(_Instrument):
    """A value that is set: learning rate, temperature."""

    @publish("self", "amount", "attributes", "context")
    @answered
    def set(
        self,
        amount: float,
        attributes: Mapping[str, object] | None = None,
        context: Any = None,
    ) -> None:
        """Set the value at the current step."""
        self._metric.record(amount, attributes)
