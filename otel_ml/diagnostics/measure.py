"""What a diagnostic records under one name: its unit, its reduction and its meaning, in one row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import otel_ml
from otel_ml._internal.meter import Metric

__all__ = ["Measure"]


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
        *,
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
        metric.record(value, weight=weight, step=step, axis=axis, attributes=attributes)


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
