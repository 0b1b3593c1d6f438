"""What a diagnostic records under one name: its unit, its reduction and its meaning."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from time import time_ns
from typing import Any

import otel_ml
from otel_ml._internal.append import append_row
from otel_ml._internal.axes import NOW
from otel_ml._internal.definition import DEFINITIONS, Series, reduction_from
from otel_ml._internal.meter import Metric
from otel_ml._internal.row import Row
from otel_ml._internal.step import step_for

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

    def __init__(self, *measures: Measure, prefix: str = "") -> None:
        super().__init__({measure.name.removeprefix(prefix): measure for measure in measures})
        self._rows: dict[tuple[str | None, ...], Row] = {}

    def record(self, values: dict[str, Any], over: str | None = None, step: int | None = None) -> None:
        """Record values by name, each as `Measure.record()` does."""
        if NOW.off or not values:
            return
        at = step_for(step, None, "record()", len(values))
        if at is None:
            return
        row = self._rows.get((over, *values)) or self._row(values, over)
        if row is not None and append_row(row, at, values, time_ns()):
            return
        for name, value in values.items():
            self[name].record(value, over=over, step=step)

    def _row(self, names: Iterable[str], over: str | None) -> Row | None:
        series = {name: self[name].series(over) for name in names}
        known = [one for one in series.values() if one is not None]
        if len(known) < len(series):
            return None
        key = (over, *series)
        row = self._rows[key] = Row(known)
        return row


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
