"""A point with the flag `NO_RECORDED_VALUE`, as scrapers send it for a series that has ended, is not a value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import DataPointFlags

from otel_ml_service.receiver.decode import Decoded, Decoder
from tests.otlp import set_attributes
from tests.strategies import START, Service

STALE = int(DataPointFlags.DATA_POINT_FLAGS_NO_RECORDED_VALUE_MASK)
CUMULATIVE = 2


def _histogram(metric: Any, count: int, total: float | None) -> Any:
    metric.histogram.aggregation_temporality = CUMULATIVE
    point = metric.histogram.data_points.add(count=count, explicit_bounds=[0.04, 0.1])
    point.bucket_counts.extend([count // 2, count - count // 2, 0])
    if total is not None:
        point.sum = total
    return point


def _gauge(metric: Any, count: int, total: float | None) -> Any:
    return metric.gauge.data_points.add() if total is None else metric.gauge.data_points.add(as_double=total / count)


def _counter(metric: Any, count: int, total: float | None) -> Any:
    metric.sum.aggregation_temporality, metric.sum.is_monotonic = CUMULATIVE, True
    return metric.sum.data_points.add(as_int=count)


def _summary(metric: Any, count: int, total: float | None) -> Any:
    return metric.summary.data_points.add(count=count, sum=total or 0.0)


def _exponential(metric: Any, count: int, total: float | None) -> Any:
    metric.exponential_histogram.aggregation_temporality = CUMULATIVE
    return metric.exponential_histogram.data_points.add(count=count, sum=total or 0.0, scale=6, zero_count=count)


class Scraper:
    """Sends one series, a second after the last time."""

    def __init__(self, make: Callable[[Any, int, float | None], Any], step: int | None = None) -> None:
        self.service, self._decoder = Service(), Decoder()
        self._make, self._step = make, step

    def send(self, count: int, total: float | None, *, flags: int = 0) -> Decoded:
        request = ExportMetricsServiceRequest()
        resource = request.resource_metrics.add()
        set_attributes(resource.resource.attributes, {"ml.experiment.id": "exp", "service.name": "vllm"})
        point = self._make(resource.scope_metrics.add().metrics.add(name="ttft"), count, total)
        self.service.wait(1)
        point.start_time_unix_nano, point.time_unix_nano = round(START * 1e9), round(self.service.now * 1e9)
        point.flags = flags
        if self._step is not None:
            set_attributes(point.attributes, {"ml.step": self._step})
        decoded = self._decoder.protobuf("metrics", request.SerializeToString())
        for found in decoded.observations.values():
            self.service.take(found)
        return decoded

    def rows(self) -> dict[int, dict[str, float]]:
        self.service.wait(400)
        return self.service.rows(role="vllm", axis="time" if self._step is None else "step")


@pytest.mark.parametrize("first", [(0, 0.0, 0), (0, None, 0), (0, None, STALE)])
def test_the_mean_of_a_window_does_not_depend_on_how_an_engine_says_that_it_has_served_nothing(
    first: tuple[int, float | None, int],
) -> None:
    scraper = Scraper(_histogram)

    scraper.send(first[0], first[1], flags=first[2])
    scraper.send(10, 0.6)
    scraper.send(20, 1.2)

    assert [row["vllm/ttft"] for row in scraper.rows().values()] == [pytest.approx(0.06)]


@pytest.mark.parametrize("step", [None, 3])
@pytest.mark.parametrize("make", [_histogram, _gauge, _counter, _summary, _exponential])
def test_a_series_that_has_ended_says_nothing_and_is_not_rejected(
    make: Callable[[Any, int, float | None], Any], step: int | None
) -> None:
    with_it, without = Scraper(make, step), Scraper(make, step)

    for scraper in (with_it, without):
        scraper.send(4, 2.0)
        for _ in range(4 if scraper is with_it else 0):  # from the third on messages are not decoded
            assert scraper.send(0, None, flags=STALE).rejections.total == 0
        scraper.send(10, 5.0)

    assert with_it.rows() == without.rows()
