"""Metrics as objects: `get_meter("train").metric("loss").record(0.12)`."""

from __future__ import annotations

from collections.abc import Mapping
from time import time_ns
from typing import TYPE_CHECKING, Any, NoReturn
from weakref import WeakSet

from otel_ml._internal.error_reporting import answered, reporter, say_unused
from otel_ml._internal.native import native
from otel_ml._internal.record.append import add_record, append, append_deferred
from otel_ml._internal.record.opentelemetry_instruments import Counter, Gauge, Histogram, UpDownCounter
from otel_ml._internal.record.relieve import relieve
from otel_ml._internal.record.trace_into_graph import trace_log
from otel_ml._internal.record.values import BeingTracedError
from otel_ml._internal.run_scope import NOW
from otel_ml._internal.safe_repr import safe_repr
from otel_ml._internal.series.buffer import LIMIT, RECORDS
from otel_ml._internal.series.definition import DEFINITIONS, Definition, Series, identity
from otel_ml._internal.series.reduction_arguments import Reduce, are_attributes, reduction_from, text_from
from otel_ml._internal.signature import MISSING, public, public_type, publish
from otel_ml._internal.steps.axes import current_step
from otel_ml._internal.steps.step import step_for

__all__ = ["Meter", "Metric", "get_meter"]


def _meant(value: Any, attributes: Any, more: tuple[object, ...], named: dict[str, Any]) -> tuple[Any, Any]:
    """Return value and attributes of a call that names them, or whose arguments are others."""
    value = named.pop("value", value) if value is MISSING else value
    attributes = named.pop("attributes", None) if attributes is None else attributes
    if more or named:
        say_unused(Metric.record, more, named)
    return value, attributes


@public_type
class Metric:
    """One metric of this process. Made once, at import or before a loop; recorded often.

    It may be made before `otel_ml.init()`: what it records goes to the run that is active then.
    """

    __slots__ = ("__weakref__", "_by_attributes", "_series", "name")

    def __init__(self, name: str, series: Series | None) -> None:
        self.name: str = name
        self._series = series
        self._by_attributes: dict[tuple[object, ...], Series] = {}
        # Of a reduction of which all parts are said nothing more can be learned.
        if series is not None and series.definition.reduction.unsaid:
            # `_look_up()` may go through the set on another thread.
            with DEFINITIONS.lock:
                _METRICS.add(self)

    def look_up(self) -> None:
        """Use what is known of the metric by now."""
        # There is none where the process has too many series: the old one still takes what is recorded.
        self._series = DEFINITIONS.series(self.name) or self._series
        self._by_attributes.clear()

    if TYPE_CHECKING:  # for whom `attributes=` is not among `unknown`

        def record(
            self,
            value: Any,
            attributes: Mapping[str, object] | None = None,
            weight: Any = None,
            step: int | None = None,
            axis: str | None = None,
        ) -> None:
            """Record a value at the current step, or at `step` of `axis`; see `log()`."""

    else:

        @publish("self", "value", "attributes", required=2)
        def record(
            self,
            value: Any = MISSING,
            attributes: Mapping[str, object] | None = None,
            /,
            weight: Any = None,
            step: int | None = None,
            axis: str | None = None,
            *more: NoReturn,
            **unknown: NoReturn,
        ) -> None:
            """Record a value at the current step, or at `step` of `axis`; see `log()`."""
            if more or unknown:
                value, attributes = _meant(value, attributes, more, unknown)
            if NOW.off:
                return
            series = self._series
            if (
                type(value) is float
                and series is not None
                and weight is None
                and step is None
                and axis is None
                and attributes is None
            ):
                records = RECORDS
                records += (series, NOW.step or current_step(), value, time_ns())
                if len(records) > LIMIT:
                    relieve()
                return
            try:
                self._record(value, weight, step, axis, attributes)
            except BeingTracedError:
                trace_log({self.name: value}, step, axis, weight=weight, attributes=attributes)
            except Exception as error:  # noqa: BLE001 - the boundary to the user's program
                reporter.failed("record()", error)

    def _record_at(self, value: float, attributes: Mapping[str, object] | None, at_ns: int) -> None:
        """Record a value of a moment, which decides which one of a step is the last."""
        if NOW.off:
            return
        try:
            self._record(value, None, None, None, attributes, at_ns)
        except Exception as error:  # noqa: BLE001 - the boundary to the user's program
            reporter.failed("add()", error)

    def _record(
        self,
        value: object,
        weight: object,
        step: int | None,
        axis: str | None,
        attributes: Mapping[str, object] | None,
        at_ns: int | None = None,
    ) -> None:
        if value is MISSING:
            said = f"record(): expected a value, got nothing. Call record(0.5) of metric {safe_repr(self.name)}."
            reporter.drop("bad_value", said, kind="record() of a metric")
            return
        target = step_for(step, axis, "record()", 1)
        if target is None or not are_attributes(attributes, "record()", 1):
            return
        if self._series is None:
            self._series = DEFINITIONS.series(self.name)  # which counts what has no name, or no room
        series = self._with(self._series, attributes) if attributes and self._series is not None else self._series
        if series is None:
            return
        records: list[Any] = []
        if add_record(records, series, target, value, weight, time_ns() if at_ns is None else at_ns):
            append_deferred(records)
        else:
            append(records)

    def _with(self, of: Series, attributes: Mapping[str, object]) -> Series | None:
        # In another order they are looked up once more, and are the same series: `identity()` sorts them.
        given = tuple(attributes.items())
        try:
            return self._by_attributes[given]
        except KeyError:
            series = self._new(of.definition, attributes)
            if series is not None:
                self._by_attributes[given] = series
            return series
        except Exception:  # noqa: BLE001 (a value that cannot be a key, such as a list: it counts as its text)
            return self._new(of.definition, attributes)

    @staticmethod
    def _new(definition: Definition, attributes: Mapping[str, object]) -> Series | None:
        """Return a series of the same definition, also where the others were forgotten since (`otel_ml.testing`)."""
        return DEFINITIONS.series(
            definition.name,
            identity(attributes),
            definition.reduction,
            unit=definition.unit,
            description=definition.description,
        )


_METRICS: WeakSet[Metric] = WeakSet()
"""Those of which something may still be said."""


def _look_up(name: str) -> None:
    with DEFINITIONS.lock:
        metrics = [metric for metric in _METRICS if metric.name == name]
    for metric in metrics:
        metric.look_up()


DEFINITIONS.outdated.append(_look_up)

if native is not None:
    Metric.record = native.record_method(Metric, Metric.record)  # type: ignore[method-assign]


@public_type
class Meter:
    """Makes metrics; `get_meter()` returns it. Its name tells who measures and is not part of a metric's name."""

    def __init__(self, name: str) -> None:
        self.name = name

    @publish("self", "name")
    @answered
    def metric(
        self,
        name: str,
        *,
        reduce: Reduce = None,
        within: str | None = None,
        over: str | None = None,
        unit: str = "",
        description: str = "",
    ) -> Metric:
        """Return the metric of this name.

        Args:
            name: published as it is where every backend accepts it.
            reduce: how values become one across ranks (else as defined, else the mean); a tuple gives several.
            within: how one rank's records of a step combine first.
            over: topology dimension of which one rank per coordinate counts.
            unit: in UCUM: `s`, `By`, `1`, `{token}`.
            description: one sentence.
        """
        reduction = reduction_from(reduce, within, over, name)
        unit, description = text_from("unit", unit, name), text_from("description", description, name)
        return Metric(name, DEFINITIONS.series(name, reduction=reduction, unit=unit, description=description))

    @answered
    def create_counter(self, name: str, unit: str = "", description: str = "") -> Counter:
        """Return an OpenTelemetry counter: what was added in a step, summed over ranks."""
        return Counter(self.metric(name, reduce="sum", unit=unit, description=description))

    @answered
    def create_up_down_counter(self, name: str, unit: str = "", description: str = "") -> UpDownCounter:
        """Return an OpenTelemetry up-down counter: its level at the end of a step, summed over ranks."""
        return UpDownCounter(self.metric(name, reduce="sum", within="last", unit=unit, description=description))

    @answered
    def create_histogram(self, name: str, unit: str = "", description: str = "", **_: object) -> Histogram:
        """Return an OpenTelemetry histogram: mean and quantiles of all records of a step."""
        reduce = ("mean", "p50", "p90", "p99")
        return Histogram(self.metric(name, reduce=reduce, unit=unit, description=description))

    @answered
    def create_gauge(self, name: str, unit: str = "", description: str = "") -> Gauge:
        """Return an OpenTelemetry gauge: the last value set in a step."""
        return Gauge(self.metric(name, reduce="last", unit=unit, description=description))


@public
@answered
def get_meter(
    name: str = "",
    version: str | None = None,
    schema_url: str | None = None,
    attributes: Mapping[str, object] | None = None,
) -> Meter:
    """Return a meter, with OpenTelemetry's signature.

    Args:
        name: who measures, such as a module's name; no part of a metric's name.
        version: accepted as there, and not used.
        schema_url: the same.
        attributes: the same.
    """
    return Meter(name)
