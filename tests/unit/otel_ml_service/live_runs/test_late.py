from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from otel_ml_service.aggregation.observation import Fragment, ThirdPartyPoints
from otel_ml_service.live_runs.late_file import LateFile
from otel_ml_service.live_runs.late_requests import as_request
from otel_ml_service.receiver.decode import Decoder
from tests.otlp import START, FakeWriter, set_attributes, third_party_request


def weighted() -> Any:
    request = FakeWriter(extra={"ml.topology.dp": 1, "ml.topology.dp.size": 4, "ml.prefix": ""}).step(
        3, {"a": 1.0, "b": 2.0}
    )
    point = request.resource_metrics[0].scope_metrics[0].metrics[1].histogram.data_points[0]
    point.count, point.min, point.max = 3, float("-inf"), float("nan")
    set_attributes(point.attributes, {"ml.m2": 2.0, "ml.wsum": 4.0, "ml.wxsum": 5.5, "task": "math"})
    return request


def by_default() -> Any:
    request = FakeWriter().step(3, {"a": 1.0}, reduction="max>mean")
    scope = request.resource_metrics[0].scope_metrics[0].scope
    set_attributes(scope.attributes, {"ml.reduction.default": "across,within"})
    return request


def cumulative() -> Any:
    request = ExportMetricsServiceRequest()
    resource = request.resource_metrics.add()
    set_attributes(resource.resource.attributes, {"ml.experiment.id": "run-1"})
    data = resource.scope_metrics.add().metrics.add(name="tokens", unit="1").sum
    data.aggregation_temporality, data.is_monotonic = 2, True
    point = data.data_points.add(as_double=7.5, time_unix_nano=START, start_time_unix_nano=START - 5)
    set_attributes(point.attributes, {"ml.step": 4, "gpu": "0"})
    return request


def histogram() -> Any:
    request = ExportMetricsServiceRequest()
    resource = request.resource_metrics.add()
    set_attributes(resource.resource.attributes, {"ml.experiment.id": "run-1"})
    data = resource.scope_metrics.add().metrics.add(name="latency").histogram
    data.aggregation_temporality = 1
    point = data.data_points.add(count=3, sum=9.0, min=1.0, max=5.0, time_unix_nano=START, bucket_counts=[1, 2, 0])
    point.explicit_bounds.extend([2.0, 5.0])
    set_attributes(point.attributes, {"ml.step": 4})
    return request


@pytest.mark.parametrize(
    "request_",
    [
        weighted(),
        by_default(),
        third_party_request([{"name": "gpu", "value": 1.0, "ml.step": 2}]),
        cumulative(),
        histogram(),
    ],
    ids=["own", "own, with a reduction that nobody asked for", "gauge", "sum", "histogram with bounds"],
)
def test_what_is_in_the_file_decodes_to_what_came_too_late(tmp_path: Path, request_: Any) -> None:
    sent = Decoder().protobuf("metrics", request_.SerializeToString()).observations["run-1"][0]
    assert isinstance(sent, (Fragment, ThirdPartyPoints))

    LateFile(tmp_path / "late.otlp", 0, 2**20).append([as_request(sent).SerializeToString()])

    content = (tmp_path / "late.otlp").read_bytes()
    (length,) = struct.unpack_from(">I", content)
    assert length == len(content) - 4
    (back,) = Decoder().protobuf("metrics", content[4:]).observations["run-1"]
    assert isinstance(back, type(sent))
    for name in set(type(sent)._fields) - {"partials"}:
        assert getattr(back, name) == getattr(sent, name), name
    assert back.partials.series == sent.partials.series
    assert back.partials.buckets == sent.partials.buckets
    np.testing.assert_array_equal(back.partials.stats, sent.partials.stats)
    np.testing.assert_array_equal(back.partials.times, sent.partials.times)
