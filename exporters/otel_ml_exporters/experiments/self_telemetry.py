"""The service's account of itself, as points of the run: `otel_ml/…` on the axis `time` (CONTRACT §6)."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from otel_ml.wire.attributes import RESERVED_PREFIX
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
    status = run.status
    counts = status.counts
    yield "recorded", (), status.recorded
    yield "duplicate", (), counts.duplicate
    yield "late", (), counts.too_late
    yield "amended", (), counts.amended
    yield "open_steps", (), status.open_steps
    yield "overhead", (), status.overhead_s
    for reason, lost in status.lost.items():
        yield "dropped", (("reason", reason),), lost
    for name, pipeline in run.pipelines.items():
        yield "delivered", (("exporter", name),), pipeline.status.delivered
        yield "lag", (("exporter", name),), pipeline.behind
        yield "lost", (("exporter", name),), sum(pipeline.status.lost.values())


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
        reduction=None,
        start_ns=0,
        time_ns=time_ns,
        partials=Partials(series, stats, np.array([[time_ns, time_ns]], dtype=np.int64)),
    )
