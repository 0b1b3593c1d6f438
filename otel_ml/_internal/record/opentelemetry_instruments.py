"""OpenTelemetry's instruments over ours: programs written for `opentelemetry.metrics` need no change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from otel_ml._internal.error_reporting import say_unused
from otel_ml._internal.series.definition import DEFINITIONS, Attributes, identity
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
    def add(
        self,
        amount: float,
        attributes: Mapping[str, object] | None = None,
        context: Any = None,
        **unknown: NoReturn,
    ) -> None:
        """Add to the current step."""
        say_unused("add", (), unknown)
        self._metric.record(amount, attributes)


@public_type
class UpDownCounter(_Instrument):
    """A level that is told by its changes: queue length, open episodes."""

    def __init__(self, metric: Metric) -> None:
        super().__init__(metric)
        self._levels: dict[Attributes, float] = {}

    @publish("self", "amount", "attributes", "context")
    def add(
        self,
        amount: float,
        attributes: Mapping[str, object] | None = None,
        context: Any = None,
        **unknown: NoReturn,
    ) -> None:
        """Change the level, and record the new one at the current step."""
        say_unused("add", (), unknown)
        key = identity(attributes or {})
        with DEFINITIONS.lock:
            level = self._levels[key] = self._levels.get(key, 0) + amount
            self._metric.record(level, attributes)


@public_type
class Histogram(_Instrument):
    """Values of which the distribution matters: latencies, lengths."""

    @publish("self", "amount", "attributes", "context")
    def record(
        self,
        amount: float,
        attributes: Mapping[str, object] | None = None,
        context: Any = None,
        **unknown: NoReturn,
    ) -> None:
        """Record a value at the current step."""
        say_unused("record", (), unknown)
        self._metric.record(amount, attributes)


@public_type
class Gauge(_Instrument):
    """A value that is set: learning rate, temperature."""

    @publish("self", "amount", "attributes", "context")
    def set(
        self,
        amount: float,
        attributes: Mapping[str, object] | None = None,
        context: Any = None,
        **unknown: NoReturn,
    ) -> None:
        """Set the value at the current step."""
        say_unused("set", (), unknown)
        self._metric.record(amount, attributes)
