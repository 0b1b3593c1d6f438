"""A program with the real OpenTelemetry SDK, whose exports a test makes and hands to an engine."""

from __future__ import annotations

from collections.abc import Mapping

from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.metrics import Meter
from opentelemetry.sdk.metrics import Counter, Histogram, MeterProvider, UpDownCounter
from opentelemetry.sdk.metrics import _Gauge as Gauge
from opentelemetry.sdk.metrics.export import AggregationTemporality, InMemoryMetricReader
from opentelemetry.sdk.metrics.view import Aggregation
from opentelemetry.sdk.resources import Resource

from otel_ml_service.receiver.decode import Decoder
from tests.strategies import START, Service

__all__ = ["CUMULATIVE", "DELTA", "Sdk", "Where", "at"]

CUMULATIVE, DELTA = AggregationTemporality.CUMULATIVE, AggregationTemporality.DELTA

READER_APART_NS = 5_000
"""How much later the streams of the next reader of a provider begin."""

Where = Mapping[str, str | int]


class Sdk:
    """A program with the OpenTelemetry SDK; `export` is what its periodic reader does."""

    def __init__(
        self,
        rank: int = 0,
        *,
        temporality: AggregationTemporality = CUMULATIVE,
        aggregation: Mapping[type, Aggregation] | None = None,
        readers: int = 1,
    ) -> None:
        instruments: tuple[type, ...] = (Counter, Gauge, Histogram, UpDownCounter)
        kinds = dict.fromkeys(instruments, temporality)
        self._readers = [InMemoryMetricReader(kinds, dict(aggregation or {})) for _ in range(readers)]
        resource = Resource.create(
            {
                "ml.experiment.id": "exp",
                "service.name": "trainer",
                "service.instance.id": f"sdk-{rank}",
                "ml.rank": rank,
            }
        )
        self._provider = MeterProvider(self._readers, resource=resource, shutdown_on_exit=False)
        self._decoder = Decoder()

    def meter(self, name: str, version: str | None = None, attributes: Where | None = None) -> Meter:
        """Return a meter."""
        return self._provider.get_meter(name, version, attributes=dict(attributes or {}))

    def export(self, service: Service, reader: int = 0) -> None:
        """Send everything, a second after the last time; all points have the times that the service's clock shows.

        Streams of a further reader begin a little later, as the SDK makes them one after the other.
        """
        service.wait(1)
        data = self._readers[reader].get_metrics_data()
        if data is None:
            return
        request = encode_metrics(data)
        for scope in request.resource_metrics[0].scope_metrics:
            for metric in scope.metrics:
                for point in getattr(metric, metric.WhichOneof("data")).data_points:
                    point.start_time_unix_nano = round(START * 1e9) + reader * READER_APART_NS
                    point.time_unix_nano = round(service.now * 1e9)
        for observations in self._decoder.protobuf("metrics", request.SerializeToString()).observations.values():
            service.take(observations)


def at(step: int, reduction: str) -> Where:
    """Return the attributes of a value at a step."""
    return {"ml.step": step, "ml.reduction": reduction}
