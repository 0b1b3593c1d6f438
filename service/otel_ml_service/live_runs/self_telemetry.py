"""The service's account of itself: `otel_ml/…` on the axis `time`, and `/metrics` (docs/protocol.md §6.6)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from otel_ml.wire.attributes import RESERVED_PREFIX
from otel_ml.wire.reduction import Reduction
from otel_ml_service.aggregation.observation import Attributes, Partials, SeriesKey, ThirdPartyPoints, Writer
from otel_ml_service.aggregation.points import single
from otel_ml_service.live_runs.live_run import LiveRun
from otel_ml_service.telemetry import Measure

__all__ = ["INTERVAL_S", "run_measures", "self_points"]

INTERVAL_S = 10.0
"""The width of a window of points that carry no step."""


def self_points(run: LiveRun, now: float) -> list[ThirdPartyPoints]:
    """Return the run's counters as they stand, those that only the service knows; the engine publishes the others."""
    writer = Writer(experiment=run.experiment, role="", instance="otel_ml_exporters")
    measures = list(_of_exporters(run))
    if run.rejected:
        measures.append(("rejected", (), run.rejected))
    return [_gauge(writer, name, attributes, value, now) for name, attributes, value in measures]


def run_measures(run: LiveRun) -> Iterator[Measure]:
    """Yield everything that is known about a run, for `/metrics`; any thread may ask."""
    status = run.status
    found: list[Measure] = [
        ("received", (), status.counts.received),
        ("ranks", (), status.ranks.heard),
        ("ranks_expected", (), status.ranks.expected),
        ("recorded", (), status.recorded),
        ("superseded", (), status.superseded),
        ("unreceived", (), status.unreceived),
        ("duplicate", (), status.counts.duplicate),
        ("too_late", (), status.counts.too_late),
        ("amended", (), status.counts.amended),
        ("open_steps", (), status.open_steps),
        ("overhead_s", (), status.overhead_s),
        *(("dropped", (("reason", reason),), count) for reason, count in status.lost.items()),
        *_of_exporters(run),
    ]
    # `/metrics` is of all runs, so each number says of which one it is.
    for name, labels, value in found:
        yield name, (*labels, ("run", run.experiment)), value


def _of_exporters(run: LiveRun) -> Iterator[Measure]:
    # A copy: other threads ask while the engine's starts exporters.
    for name, pipeline in list(run.pipelines.started.items()):
        exporter: Attributes = (("exporter", name),)
        status = pipeline.status
        yield "delivered", exporter, status.delivered
        yield "lag", exporter, pipeline.behind
        yield "lost", exporter, sum(status.lost.values())


def _gauge(writer: Writer, name: str, attributes: Attributes, value: float, now: float) -> ThirdPartyPoints:
    # A gauge has one moment, which is both its beginning and its end.
    time_ns = int(now * 1e9)
    series = (SeriesKey(f"{RESERVED_PREFIX}{name}", attributes, "order"),)
    return ThirdPartyPoints(
        writer=writer,
        kind="gauge",
        temporality="none",
        monotonic=None,
        axis=None,
        step=None,
        reduction=Reduction(("last",)),
        starts=(0,),
        partials=Partials(series, single(value), np.array([[time_ns, time_ns]], dtype=np.int64)),
    )
