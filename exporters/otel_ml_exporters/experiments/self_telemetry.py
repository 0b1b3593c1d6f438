"""The service's account of itself, as points of the run: `otel_ml/…` on the axis `time` (CONTRACT §6)."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from otel_ml.wire.attributes import RESERVED_PREFIX
from otel_ml.wire.reduction import Reduction
from otel_ml_exporters.aggregation.observation import Attributes, ForeignPoint, Partials, SeriesKey, Writer
from otel_ml_exporters.experiments.run import ExperimentRun

__all__ = ["INTERVAL_S", "self_points"]

INTERVAL_S = 10.0
"""The width of a window of points that carry no step."""


def self_points(run: ExperimentRun, now: float) -> list[ForeignPoint]:
    """Return the run's counters as they stand."""
    writer = Writer(experiment=run.experiment, role="", instance="otel_ml_exporters")
    return [_gauge(writer, name, attributes, value, now) for name, attributes, value in _values(run)]


def _values(run: ExperimentRun) -> Iterator[tuple[str, Attributes, float]]:
    # What came in, and what became of it, the engine publishes itself; this is what only the service knows.
    for name, pipeline in run.pipelines.items():
        exporter: Attributes = (("exporter", name),)
        yield "delivered", exporter, pipeline.status.delivered
        yield "lag", exporter, pipeline.behind
        yield "lost", exporter, sum(pipeline.status.lost.values())


def _gauge(writer: Writer, name: str, attributes: Attributes, value: float, now: float) -> ForeignPoint:
    metric = f"{RESERVED_PREFIX}{name}"
    time_ns = int(now * 1e9)
    absent = math.nan
    stats = np.array([[1.0, value, value, value, absent, absent, absent]])
    series = (SeriesKey(metric, attributes, "order"),)
    return ForeignPoint(
        writer=writer,
        metric=metric,
        attributes=attributes,
        unit="",
        kind="gauge",
        temporality="none",
        monotonic=None,
        axis=None,
        step=None,
        reduction=Reduction(("last",)),
        start_ns=0,
        time_ns=time_ns,
        partials=Partials(series, stats, np.array([[time_ns, time_ns]], dtype=np.int64)),
    )
