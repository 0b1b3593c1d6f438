"""Only `opentelemetry-sdk`, no otel_ml in this program: four attributes make it a part of the run.

    otel-ml serve --to jsonl                                                 # in another terminal
    OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318 python examples/plain_opentelemetry.py

Any language with an OpenTelemetry SDK can do the same. Expected: the run `plain-otel` with `tokens` = 3 × 100 and
`loss` = 1 / (1 + step) at the steps 0…19.
"""

from __future__ import annotations

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics import Counter, Histogram, MeterProvider
from opentelemetry.sdk.metrics.export import AggregationTemporality, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource

STEPS = 20


def main() -> None:
    delta = AggregationTemporality.DELTA
    exporter = OTLPMetricExporter(preferred_temporality={Counter: delta, Histogram: delta})
    reader = PeriodicExportingMetricReader(exporter, export_interval_millis=1000)
    resource = Resource.create({"ml.experiment.id": "plain-otel", "service.name": "trainer", "ml.rank": 0})
    provider = MeterProvider([reader], resource=resource)
    meter = provider.get_meter("my-program")
    tokens = meter.create_counter("tokens", unit="{token}")
    loss = meter.create_histogram("loss")

    for step in range(STEPS):
        for _ in range(3):
            tokens.add(100, {"ml.step": step, "ml.reduction": "sum"})
        loss.record(1 / (1 + step), {"ml.step": step, "ml.reduction": "mean"})

    provider.shutdown()


if __name__ == "__main__":
    main()
