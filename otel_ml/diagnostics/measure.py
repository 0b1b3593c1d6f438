"""What a diagnostic records under one name: its unit, its reduction and its meaning."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
from time import time_ns
from typing import Any

import otel_ml
from otel_ml._internal.device_tensor import Deferred
from otel_ml._internal.native import native
from otel_ml._internal.record.append import append, append_row
from otel_ml._internal.record.meter import Metric
from otel_ml._internal.record.values import Recordable
from otel_ml._internal.run_scope import NOW
from otel_ml._internal.series.definition import DEFINITIONS, Series
from otel_ml._internal.series.reduction_arguments import reduction_from
from otel_ml._internal.series.row import Row
from otel_ml._internal.signature import publish
from otel_ml._internal.steps.step import step_for

__all__ = ["Measure", "Measures"]


@dataclass(frozen=True, slots=True)
class Measure:
    """One metric of a diagnostic.

    Attributes:
        name: as `log()` takes it.
        unit: in UCUM: `s`, `By`, `1`, `{token}`.
        reduce: across ranks, in the words of `log(reduce=)`.
        description: one sentence.
        within: how one rank's records of a step combine first.
    """

    name: str
    unit: str
    reduce: tuple[str, ...]
    description: str
    within: str | None = None
    _metrics: dict[str | None, Metric] = field(default_factory=dict, init=False, repr=False, compare=False)

    def record(
        self,
        value: Any,
        weight: Any = None,
        over: str | None = None,
        step: int | None = None,
        axis: str | None = None,
        attributes: Mapping[str, object] | None = None,
    ) -> None:
        """Record a value as `log()` does: at the current step or at `step`; nothing waits, nothing is raised."""
        # Kept here and not only in `_metric()`: to look there, the measure would have to be hashed at each record.
        metric = self._metrics.get(over)
        if metric is None:
            metric = self._metrics[over] = _metric(self, over)
        metric.record(value, attributes, weight, step, axis)

    def series(self, over: str | None = None) -> Series | None:
        """Return the series that is recorded without attributes; None where this process has too many."""
        reduction = reduction_from(self.reduce, self.within, over, self.name)
        return DEFINITIONS.series(self.name, reduction=reduction, unit=self.unit, description=self.description)


class Measures(dict[str, Measure]):
    """Measures by name, or by what follows `prefix` in it. Those known at the same time are one row (ADR 0017)."""

    __slots__ = ("_rows",)

    def __init__(self, *measures: Measure, prefix: str = "") -> None:
        super().__init__({measure.name.removeprefix(prefix): measure for measure in measures})
        self._rows: dict[tuple[str | None, ...], tuple[Row, tuple[Series, ...]]] = {}

    @publish("self", "values")
    def record(
        self,
        values: dict[str, Any],
        over: str | None = None,
        step: int | None = None,
        several: dict[str, Recordable] | None = None,
    ) -> None:
        """Record values by name, each as `Measure.record()` does, and what stands in `several` as it is.

        Args:
            values: by name.
            over: topology dimension of which one rank per coordinate counts.
            step: instead of the current one.
            several: by name a float with its weight, or floats that count by themselves.
        """
        if NOW.off or not values:
            return
        at = step_for(step, None, "record()", len(values) + (len(several) if several else 0))
        if at is None:
            return
        # None stands between them: a name that moves from one to the other has another key.
        key = (over, *values, None, *several) if several else (over, *values)
        known = self._rows.get(key) or self._known(key, values, several or (), over)
        if known is not None:
            row, others = known
            more = [*zip(others, several.values(), strict=True)] if several else ()
            if append_row(row, at, values, time_ns(), more):
                return
        self._record_each(values, several or {}, over, step)

    def record_later(self, values: Mapping[str, Deferred]) -> None:
        """Record what will be known later, at the step of now: nothing waits."""
        if NOW.off:
            return
        at = step_for(None, None, "record()", len(values))
        if at is None:
            return
        # Unlike any key of `record()`, whose second part is a name.
        key = (None, None, *values)
        known = self._rows.get(key) or self._known(key, (), values, None)
        if known is not None:
            now = time_ns()
            append(
                chain.from_iterable(
                    [(series, at, value, now) for series, value in zip(known[1], values.values(), strict=True)]
                )
            )

    def _record_each(
        self, values: dict[str, Any], several: dict[str, Recordable], over: str | None, step: int | None
    ) -> None:
        for name, value in values.items():
            self[name].record(value, over=over, step=step)
        for name, item in several.items():
            value, weight = item if isinstance(item, tuple) else (item, None)
            self[name].record(value, weight=weight, over=over, step=step)

    def _known(
        self, key: tuple[str | None, ...], values: Iterable[str], several: Iterable[str], over: str | None
    ) -> tuple[Row, tuple[Series, ...]] | None:
        row, others = ([self[name].series(over) for name in names] for names in (values, several))
        # Not kept: this process has too many series now, and may have room later.
        if None in row or None in others:
            return None
        known = self._rows[key] = Row([*filter(None, row)]), tuple(filter(None, others))
        return known


if native is not None:
    # The compiled method does the usual case itself, and calls the one above for the others.
    Measures.record = native.measures_method(Measures, Measures.record, step_for, time_ns)  # type: ignore[method-assign]


@lru_cache(maxsize=4096)
def _metric(measure: Measure, over: str | None) -> Metric:
    """Return the metric of a measure, also of one that is made anew each time: to define it costs more than to record.

    Its hash costs as much as recording, too: those that live for long keep their metrics.
    """
    return otel_ml.get_meter("otel_ml.diagnostics").metric(
        measure.name,
        reduce=measure.reduce,
        within=measure.within,
        over=over,
        unit=measure.unit,
        description=measure.description,
    )
