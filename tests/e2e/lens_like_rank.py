"""One rank with an OpenTelemetry SDK that sends what NVIDIA's NeMo Lens 0.1 does: `lens_rank.py` for older Pythons.

Its resource has `nemo.run.id`, `dl.rank` and `dl.world_size`; the step is `dl.iteration`, on spans and on points.
"""

from __future__ import annotations

import sys

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor


def main(rank: int, world_size: int, steps: int) -> None:
    resource = Resource.create(
        {
            "service.name": "nemo",
            "service.instance.id": f"lens-rank{rank}",
            "nemo.run.id": "lens",
            "dl.rank": rank,
            "dl.world_size": world_size,
        }
    )
    meters = MeterProvider([PeriodicExportingMetricReader(OTLPMetricExporter(), 200)], resource)
    tracers = TracerProvider(resource=resource)
    tracers.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    tracer, meter = tracers.get_tracer("nemo.lens"), meters.get_meter("nemo.lens")
    loss, tokens = meter.create_gauge("dl.loss"), meter.create_counter("tokens")
    for iteration in range(steps):
        with tracer.start_as_current_span("train_step", attributes={"dl.iteration": iteration}):
            loss.set(float(rank + iteration), {"dl.iteration": iteration})
            tokens.add(100, {"dl.iteration": iteration})
    tracers.shutdown()
    meters.shutdown()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
