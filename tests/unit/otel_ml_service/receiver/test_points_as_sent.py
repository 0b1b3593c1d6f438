"""What another program's SDK records is what is read of it, whatever kind of point it has chosen."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from otel_ml_service.aggregation.observation import Buckets, Fragment, ThirdPartyPoints
from otel_ml_service.receiver.decode import Decoder
from tests.otlp import START, FakeWriter, set_attributes, third_party_request

KINDS = {
    "gauge": ("gauge", "order"), "sum": ("sum", "moments"), "histogram": ("histogram", "moments"),
    "exponential_histogram": ("exponential", "buckets"), "summary": ("histogram", "moments"),
}  # fmt: skip
"""Field of a metric → kind of its points, and of their series."""

TEMPORALITIES = {0: "none", 1: "delta", 2: "cumulative"}


def _number(point: Any) -> tuple[float, ...]:
    point.as_int = 5
    return 1.0, 5.0, 5.0, 5.0


def _counted(point: Any) -> tuple[float, ...]:
    point.count, point.sum = 3, 4.5
    return 3.0, 4.5, math.nan, math.nan


FILLED: Mapping[str, Callable[[Any], tuple[float, ...]]] = {
    "gauge": _number, "sum": _number, "histogram": _counted, "exponential_histogram": _counted, "summary": _counted,
}  # fmt: skip


@given(
    field=st.sampled_from([*KINDS]),
    temporality=st.sampled_from([*TEMPORALITIES]),
    monotonic=st.booleans(),
    start=st.integers(0, START),
    in_scope=st.fixed_dictionaries(
        {}, optional={"ml.step": st.integers(0, 2**40), "ml.step.axis": st.just("eval"), "ml.reduction": st.just("max")}
    ),
    in_point=st.fixed_dictionaries(
        {}, optional={"ml.step": st.integers(0, 2**40), "ml.step.axis": st.just("of"), "ml.reduction": st.just("min")}
    ),
    identity=st.dictionaries(st.sampled_from(["gpu", "task"]), st.sampled_from(["math", "7"])),
    times=st.integers(1, 3),
)
def test_points_are_what_was_sent(
    field: str,
    temporality: int,
    monotonic: bool,
    start: int,
    in_scope: dict[str, Any],
    in_point: dict[str, Any],
    identity: dict[str, str],
    times: int,
) -> None:
    request = ExportMetricsServiceRequest()
    resource = request.resource_metrics.add()
    set_attributes(resource.resource.attributes, {"ml.experiment.id": "run-1"})
    scope = resource.scope_metrics.add()
    scope.scope.name = "my.library"
    set_attributes(scope.scope.attributes, in_scope)
    data = getattr(scope.metrics.add(name="vllm:queue:size"), field)
    if field not in {"gauge", "summary"}:
        data.aggregation_temporality = temporality
    if field == "sum":
        data.is_monotonic = monotonic
    point = data.data_points.add(start_time_unix_nano=start, time_unix_nano=START)
    stats = FILLED[field](point)
    set_attributes(point.attributes, {**identity, **in_point})
    decoder = Decoder()

    for _ in range(times):  # the second and third time its attributes, and its form, are known
        decoded = decoder.protobuf("metrics", request.SerializeToString())

        assert not decoded.rejections.total
        [found] = decoded.observations["run-1"]
        said = {**in_scope, **in_point}
        step = said.get("ml.step")
        assert isinstance(found, ThirdPartyPoints)
        assert (found.kind, found.scope, found.starts) == (KINDS[field][0], "my.library", (start,))
        assert found.temporality == {"gauge": "none", "summary": "cumulative"}.get(field, TEMPORALITIES[temporality])
        assert found.monotonic == (monotonic if field == "sum" else None)
        assert (found.step, found.axis) == (step, None if step is None else said.get("ml.step.axis", "step"))
        assert (None if found.reduction is None else str(found.reduction)) == said.get("ml.reduction")
        [series] = found.partials.series
        assert (series.name, series.kind) == ("vllm/queue/size", KINDS[field][1])
        assert series.attributes == tuple(sorted(identity.items()))
        assert found.partials.stats[0, :4].tolist() == pytest.approx(stats, nan_ok=True)
        assert found.partials.times.tolist() == [[start or START, START]]


@given(
    st.lists(
        st.fixed_dictionaries(
            {"gpu": st.sampled_from([0, 1, "0", "1", 1.0, True, [1], [2], "x" * 2000, "y" * 2000])},
            optional={"ml.step": st.integers(0, 2), "ml.m2": st.sampled_from([0.5, 1.5])},
        ),
        min_size=2,
        max_size=8,
    )
)
def test_points_of_one_metric_are_told_apart_by_whatever_attributes_they_have(sent: list[dict[str, Any]]) -> None:
    decoder = Decoder()
    for said in sent:  # one after the other, as exports come
        body = third_party_request([{"name": "util", "value": 0.5, **said}]).SerializeToString()

        [found] = decoder.protobuf("metrics", body).observations["run-1"]

        assert isinstance(found, ThirdPartyPoints)
        [series] = found.partials.series
        gpu = said["gpu"] if isinstance(said["gpu"], str) else json.dumps(said["gpu"], separators=(",", ":"))
        assert (found.step, series.attributes) == (said.get("ml.step"), (("gpu", gpu),))


@given(
    scale=st.integers(-10, 20),
    zeros=st.integers(0, 2**40),
    sides=st.tuples(*[st.tuples(st.integers(-1000, 1000), st.lists(st.integers(0, 2**40), max_size=4))] * 2),
)
def test_exponential_buckets_are_what_was_sent(
    scale: int, zeros: int, sides: tuple[tuple[int, list[int]], tuple[int, list[int]]]
) -> None:
    (above, aboves), (below, belows) = sides
    request = FakeWriter().step(1, {})
    metric = request.resource_metrics[0].scope_metrics[0].metrics.add(name="latency")
    point = metric.exponential_histogram.data_points.add(count=3, sum=1.0, scale=scale, zero_count=zeros)
    point.positive.offset, point.negative.offset = above, below
    point.positive.bucket_counts.extend(aboves)
    point.negative.bucket_counts.extend(belows)

    found, _ = Decoder().protobuf("metrics", request.SerializeToString()).observations["run-1"]

    assert isinstance(found, Fragment)
    assert found.partials.buckets == (Buckets(scale, zeros, above, tuple(aboves), below, tuple(belows)),)


@pytest.mark.parametrize("scale", [-11, 21])
def test_a_scale_that_no_exponential_histogram_has_is_rejected(scale: int) -> None:
    request = FakeWriter().step(1, {"loss": 1.0})
    metric = request.resource_metrics[0].scope_metrics[0].metrics.add(name="latency")
    metric.exponential_histogram.data_points.add(count=3, sum=1.0, scale=scale)

    decoded = Decoder().protobuf("metrics", request.SerializeToString())

    assert decoded.rejections.total == 1
    assert f"'latency' has scale {scale}; expected -10 to 20." in decoded.rejections.message
    fragment = decoded.observations["run-1"][0]
    assert isinstance(fragment, Fragment)
    assert [series.name for series in fragment.partials.series] == ["loss"]


@pytest.mark.parametrize(
    "said", [{}, {"ml.reduction": "max"}, {"ml.reduction": "max", "ml.reduction.default": "across"}]
)
def test_a_point_that_says_how_it_is_reduced_has_asked_for_it_whatever_its_scope_leaves_to_a_default(
    said: dict[str, str],
) -> None:
    request = FakeWriter().step(1, {"loss": 1.0})
    scope = request.resource_metrics[0].scope_metrics[0]
    set_attributes(scope.scope.attributes, {"ml.reduction.default": "across"})
    set_attributes(scope.metrics[0].histogram.data_points[0].attributes, {"gpu": "1", "ml.step": 1, **said})

    fragment = Decoder().protobuf("metrics", request.SerializeToString()).observations["run-1"][0]

    assert isinstance(fragment, Fragment)
    asked = said.get("ml.reduction.default", "") if "ml.reduction" in said else "across"
    assert (str(fragment.reduction), fragment.reduction.unsaid) == (
        said.get("ml.reduction", "mean"), (asked,) if asked else (),
    )  # fmt: skip
    assert fragment.partials.series[0].attributes == (("gpu", "1"),)


@pytest.mark.parametrize("own", [True, False])
def test_a_metric_of_a_kind_that_is_not_known_is_said_and_those_beside_it_are_taken(own: bool) -> None:
    request = FakeWriter().step(1, {"loss": 1.0}) if own else third_party_request([{"name": "loss", "value": 1.0}])
    request.resource_metrics[0].scope_metrics[0].metrics.add(name="of the future")

    decoded = Decoder().protobuf("metrics", request.SerializeToString())

    found = decoded.observations["run-1"][0]
    assert isinstance(found, Fragment | ThirdPartyPoints)
    assert [series.name for series in found.partials.series] == ["loss"]
    assert [*decoded.rejections.reasons] == ["the metric 'of the future' is of no kind that OTLP has."]


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize(
    ("name", "time_ns", "reason"),
    [
        ("x" * 4091, START, ""),
        ("x" * 4092, START, "have 4097 characters; expected at most 4096"),
        ("x", 2**63 - 1, ""),
        ("x", 2**63, f"time_unix_nano={2**63} is beyond the year 2262"),
    ],
)
def test_a_name_with_its_attributes_and_a_time_are_as_long_as_they_may_be_and_no_longer(
    own: bool, name: str, time_ns: int, reason: str
) -> None:
    request = FakeWriter().step(1, {name: 1.0}) if own else third_party_request([{"name": name, "value": 1.0}])
    [metric] = request.resource_metrics[0].scope_metrics[0].metrics
    [point] = metric.histogram.data_points if own else metric.gauge.data_points
    point.time_unix_nano = time_ns
    set_attributes(point.attributes, {"task": "a"})

    rejections = Decoder().protobuf("metrics", request.SerializeToString()).rejections

    assert rejections.total == bool(reason)
    assert reason in rejections.message


def test_an_attribute_that_is_a_map_is_the_same_one_in_whichever_order_its_keys_come() -> None:
    bodies = [
        third_party_request([{"name": "x", "value": 1.0, "of": of}]) for of in ({"a": 1, "b": [2]}, {"b": [2], "a": 1})
    ]

    found = [Decoder().protobuf("metrics", body.SerializeToString()).observations["run-1"][0] for body in bodies]

    [first, second] = [one.partials.series for one in found if isinstance(one, ThirdPartyPoints)]
    assert first == second
    assert first[0].attributes == (("of", '{"a":1,"b":[2]}'),)
