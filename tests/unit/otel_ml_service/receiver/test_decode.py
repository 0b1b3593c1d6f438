from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import ScopeMetrics

from otel_ml._internal.messages.encode_metrics import encoded_gauge
from otel_ml.wire.reductions import STATISTICS
from otel_ml_service.aggregation.observation import (
    Event,
    Fragment,
    Observation,
    Position,
    SeriesKey,
    ShutdownMessage,
    Spans,
    ThirdPartyPoints,
    Watermark,
)
from otel_ml_service.receiver.decode import Decoded, Decoder, Signal, response
from otel_ml_service.receiver.partial_success import UndecodableError
from tests.otlp import START, FakeWriter, set_attributes, third_party_request


def decoded(message: Any, signal: Signal = "metrics") -> Decoded:
    return Decoder().protobuf(signal, message.SerializeToString())


def only(message: Any, signal: Signal = "metrics") -> Observation:
    (observations,) = decoded(message, signal).observations.values()
    (observation,) = observations
    return observation


def test_a_step_becomes_one_fragment_and_its_manifest() -> None:
    request = FakeWriter(rank=3, world_size=8).step(7, {"loss": 0.25, "lr": 1e-3}, reduction="sum>max,mean@dp")

    fragment, watermark = decoded(request).observations["run-1"]

    assert isinstance(fragment, Fragment)
    assert (fragment.axis, fragment.step, str(fragment.reduction)) == ("step", 7, "sum>max,mean@dp")
    assert (fragment.seq, fragment.seq_points) == (1, 2)
    assert [key.name for key in fragment.partials.series] == ["loss", "lr"]
    assert fragment.partials.stats[:, :4].tolist() == [[1, 0.25, 0.25, 0.25], [1, 1e-3, 1e-3, 1e-3]]
    assert (fragment.writer.rank, fragment.writer.world_size, fragment.writer.role) == (3, 8, "trainer")
    assert watermark == Watermark(fragment.writer, "step", 7, 2, 2)


@pytest.mark.parametrize(("said", "known"), [(5, 5), (2, 2), (None, 2), ("5", 2)])
def test_of_a_message_that_was_cut_it_is_known_how_many_points_belong_to_its_number(said: Any, known: int) -> None:
    request = FakeWriter().step(7, {"loss": 0.25, "lr": 1e-3})
    scope = request.resource_metrics[0].scope_metrics[0].scope
    [place] = [place for place, pair in enumerate(scope.attributes) if pair.key == "ml.seq.points"]
    del scope.attributes[place]
    set_attributes(scope.attributes, {} if said is None else {"ml.seq.points": said})
    decoder = Decoder()

    for _ in range(3):  # at the third time its form is known
        fragment = decoder.protobuf("metrics", request.SerializeToString()).observations["run-1"][0]
        assert isinstance(fragment, Fragment)
        assert fragment.seq_points == known


def test_points_that_are_rejected_are_none_that_a_step_would_wait_for() -> None:
    request = FakeWriter().step(7, {"loss": 0.25, "lr": 1e-3, "x" * 5000: 1.0})
    request.resource_metrics[0].scope_metrics[0].scope.attributes[-1].value.int_value = 9
    assert request.resource_metrics[0].scope_metrics[0].scope.attributes[-1].key == "ml.seq.points"

    found = decoded(request)

    fragment = found.observations["run-1"][0]
    assert isinstance(fragment, Fragment)
    assert (fragment.seq_points, found.rejections.total) == (8, 1)


def test_the_same_shape_and_the_same_writer_are_the_same_objects() -> None:
    decoder, writer = Decoder(), FakeWriter()
    first, second = (
        decoder.protobuf("metrics", writer.step(step, {"a": 1.0, "b": 2.0}).SerializeToString()).observations["run-1"][
            0
        ]
        for step in (1, 2)
    )

    assert isinstance(first, Fragment)
    assert isinstance(second, Fragment)
    assert first.partials.series is second.partials.series
    assert first.writer is second.writer


def test_weights_and_spread_travel_as_values_and_not_as_identity() -> None:
    request = FakeWriter().step(1, {"ce": 6.0})
    point = request.resource_metrics[0].scope_metrics[0].metrics[0].histogram.data_points[0]
    point.count, point.min, point.max = 3, 1.0, 3.0
    keys = [statistic.key for statistic in STATISTICS if statistic.key]
    values = {"ml.m2": 2.0, "ml.wsum": 4, "ml.wxsum": 5.5, **{key: 0.5 + place for place, key in enumerate(keys[3:])}}
    set_attributes(point.attributes, {**values, "task": "math", "k": 8})

    fragment = decoded(request).observations["run-1"][0]

    assert isinstance(fragment, Fragment)
    assert fragment.partials.stats.tolist() == [[3, 6, 1, 3, *values.values()]]
    assert fragment.partials.series[0].attributes == (("k", "8"), ("task", "math"))


def test_step_axis_and_reduction_on_a_point_win_over_the_scope() -> None:
    request = FakeWriter().step(1, {"a": 1.0, "b": 2.0})
    point = request.resource_metrics[0].scope_metrics[0].metrics[1].histogram.data_points[0]
    set_attributes(point.attributes, {"ml.step": 9, "ml.step.axis": "eval", "ml.reduction": "max"})

    first, second, _ = decoded(request).observations["run-1"]

    assert isinstance(first, Fragment)
    assert isinstance(second, Fragment)
    assert (first.axis, first.step, str(first.reduction)) == ("step", 1, "mean")
    assert (second.axis, second.step, str(second.reduction)) == ("eval", 9, "max")
    assert (first.seq, first.seq_points) == (second.seq, second.seq_points) == (1, 2)


def test_a_position_is_a_heartbeat() -> None:
    request = FakeWriter().step(4, {})
    metric = request.resource_metrics[0].scope_metrics[1].metrics[0]
    metric.name = "otel_ml.position"

    assert [type(found) for found in decoded(request).observations["run-1"]][1:] == [Position]


def test_a_heartbeat_says_when_it_was_taken_by_the_clock_of_its_boot() -> None:
    request = FakeWriter(extra={"ml.boot": "b", "ml.boot.born": 60.5}).step(4, {})
    metric = request.resource_metrics[0].scope_metrics[1].metrics[0]
    metric.name = "otel_ml.position"
    set_attributes(metric.gauge.data_points[0].attributes, {"ml.boot.time": 61.25})

    position = decoded(request).observations["run-1"][-1]

    assert isinstance(position, Position)
    assert (position.boot_s, position.writer.boot, position.writer.born) == (61.25, "b", 60.5)


@pytest.mark.parametrize(
    ("said", "kinds"),
    [
        ('[["fetch", "wait"], ["sync_weights", "work"]]', (("fetch", "wait"), ("sync_weights", "work"))),
        ('[["pull", "waiting"], [3, "wait"], ["fetch", "wait"], ["x", []]]', (("fetch", "wait"),)),
        ("[", ()),
        ('{"fetch": 1}', ()),
        ("[[1, 2, 3]]", ()),
        ("7", ()),
    ],
)
def test_what_timers_measure_is_read_from_a_heartbeat_and_what_cannot_be_read_says_nothing(
    said: str, kinds: tuple[tuple[str, str], ...]
) -> None:
    request = FakeWriter().step(4, {"x": 1.0})
    body = encoded_gauge("otel_ml.position", "step", 4, 4, 7, 3, {"ml.timers": said})
    request.resource_metrics[0].scope_metrics.append(ScopeMetrics.FromString(body))

    position = decoded(request).observations["run-1"][-1]

    assert isinstance(position, Position)
    assert position.kinds == kinds


@pytest.mark.parametrize("more", [{}, {"ml.timers": "{}"}], ids=["of a known form", "with more to say"])
@pytest.mark.parametrize("value", [0, 3])
def test_a_position_in_no_step_is_the_heartbeat_of_a_process_that_waits(value: int, more: dict[str, str]) -> None:
    request = FakeWriter().step(4, {})
    body = encoded_gauge("otel_ml.position", None, None, value, 7, 3, {"ml.boot.time": 61.25, **more})
    del request.resource_metrics[0].scope_metrics[:]
    request.resource_metrics[0].scope_metrics.append(ScopeMetrics.FromString(body))
    decoder = Decoder()

    for _ in range(2):  # the second time its form is known
        [found] = decoder.protobuf("metrics", request.SerializeToString()).observations["run-1"]
        assert isinstance(found, Position)
        assert (found.seq, found.time_ns, found.boot_s) == (3, 7, 61.25)
        assert (found.axis, found.step) == ((None, None) if value == 0 else ("step", value))


@pytest.mark.parametrize("said", ["soon", -1.0, float("nan"), float("inf")])
def test_a_time_of_a_boot_that_is_none_is_not_known(said: object) -> None:
    request = FakeWriter(extra={"ml.boot": "b", "ml.boot.born": said}).step(4, {"x": 1.0})

    assert decoded(request).observations["run-1"][0].writer.born == 0.0


def test_a_point_of_another_sdk_keeps_its_own_coordinates() -> None:
    point = only(third_party_request([{"name": "gpu.util", "value": 0.5, "gpu": 3, "ml.step": 12}]))

    assert isinstance(point, ThirdPartyPoints)
    assert (point.kind, point.axis, point.step, point.reduction) == ("gauge", "step", 12, None)
    assert point.partials.series == (SeriesKey("gpu.util", (("gpu", "3"),), "order"),)
    assert point.partials.times.tolist() == [[START, START]]
    assert point.partials.stats[0, 1] == 0.5


def test_points_of_another_sdk_that_belong_to_one_row_come_together() -> None:
    sent = [{"name": f"m{number}", "value": 1.0, "ml.step": step} for step in (7, 8) for number in range(3)]

    (found,) = decoded(third_party_request([*sent, {"name": "m0", "value": 2.0, "ml.step": 7}])).observations.values()

    assert [
        (one.step, [key.name for key in one.partials.series], one.partials.stats[:, 1].tolist())
        for one in found
        if isinstance(one, ThirdPartyPoints)
    ] == [(7, ["m0", "m1", "m2"], [1.0, 1.0, 1.0]), (7, ["m0"], [2.0]), (8, ["m0", "m1", "m2"], [1.0, 1.0, 1.0])]


def test_attributes_that_are_equal_and_not_the_same_stay_apart() -> None:
    sent = [{"name": "m", "value": 1.0, "ml.step": 7, "of": of} for of in (1, 1.0, True, "1", 1)]

    (found,) = decoded(third_party_request(sent)).observations.values()

    groups = [one.partials.series for one in found if isinstance(one, ThirdPartyPoints)]
    assert sorted(key.attributes[0][1] for series in groups for key in series) == ["1", "1", "1", "1.0", "true"]


@pytest.mark.parametrize(
    ("field", "kind", "temporality"),
    [
        ("sum", "sum", "cumulative"),
        ("histogram", "histogram", "delta"),
        ("exponential_histogram", "exponential", "delta"),
    ],
)
def test_every_kind_of_point_yields_what_it_can(field: str, kind: str, temporality: str) -> None:
    request = ExportMetricsServiceRequest()
    resource = request.resource_metrics.add()
    set_attributes(resource.resource.attributes, {"ml.experiment.id": "run-1"})
    data = getattr(resource.scope_metrics.add().metrics.add(name="m"), field)
    data.aggregation_temporality = 2 if temporality == "cumulative" else 1
    point = data.data_points.add(as_int=5) if field == "sum" else data.data_points.add(count=2, sum=5.0)
    point.time_unix_nano = START

    found = only(request)

    assert isinstance(found, ThirdPartyPoints)
    assert (found.kind, found.temporality) == (kind, temporality)
    assert found.partials.stats[0, 1] == 5.0
    assert (found.partials.buckets is not None) == (field == "exponential_histogram")


def test_a_point_without_an_experiment_is_rejected_and_the_key_is_named() -> None:
    found = decoded(
        third_party_request([{"name": "a", "value": 1.0}, {"name": "b", "value": 2.0}], resource={"service.name": "x"})
    )
    answer = response("metrics", found.rejections)

    assert found.observations == {}
    assert answer.partial_success.rejected_data_points == 2
    assert "ml.experiment.id" in answer.partial_success.error_message


@pytest.mark.parametrize("step", [-1, 1.5, True, "7"])
def test_a_step_that_is_none_is_rejected_and_the_other_points_are_taken(step: object) -> None:
    found = decoded(
        third_party_request([{"name": "bad", "value": 1.0, "ml.step": step}, {"name": "good", "value": 2.0}])
    )

    [points] = found.observations["run-1"]
    assert isinstance(points, ThirdPartyPoints)
    assert [key.name for key in points.partials.series] == ["good"]
    assert found.rejections.total == 1
    assert f"ml.step={step!r}" in found.rejections.message


@pytest.mark.parametrize("axis", ["", 5, True])
def test_an_axis_that_is_no_name_is_rejected_and_the_other_points_are_taken(axis: object) -> None:
    bad = {"name": "bad", "value": 1.0, "ml.step": 1, "ml.step.axis": axis}
    found = decoded(third_party_request([bad, {"name": "good", "value": 2.0, "ml.step": 1}]))

    [points] = found.observations["run-1"]
    assert isinstance(points, ThirdPartyPoints)
    assert [key.name for key in points.partials.series] == ["good"]
    assert found.rejections.total == 1
    assert f"ml.step.axis={axis!r}" in found.rejections.message


def test_an_unknown_reduction_is_rejected_with_the_nearest_known_one() -> None:
    found = decoded(FakeWriter().step(1, {"a": 1.0, "b": 1.0}, reduction="maen"))

    assert found.rejections.total == 2
    assert "Did you mean 'mean'?" in found.rejections.message
    nothing, watermark = found.observations["run-1"]
    assert isinstance(nothing, Fragment)
    assert (nothing.seq, nothing.seq_points, len(nothing.partials.series)) == (1, 0, 0), "no gap that steps wait for"
    assert isinstance(watermark, Watermark)


def test_a_rejected_scope_of_our_own_leaves_no_gap_in_the_running_numbers() -> None:
    request = FakeWriter().step(1, {"a": 1.0})
    for attribute in request.resource_metrics[0].scope_metrics[0].scope.attributes:
        if attribute.key == "ml.step":
            attribute.value.int_value = -1

    nothing, watermark = decoded(request).observations["run-1"]

    assert isinstance(nothing, Fragment)
    assert (nothing.seq, nothing.seq_points) == (1, 0)
    assert isinstance(watermark, Watermark)


def test_a_rank_that_is_no_number_is_rejected() -> None:
    found = decoded(FakeWriter(extra={"ml.rank": "first"}).step(1, {"a": 1.0}))

    assert "'ml.rank' is 'first'" in found.rejections.message


def test_numbers_in_the_resource_may_be_text_as_from_the_environment() -> None:
    writer = FakeWriter(extra={"ml.rank": "5", "ml.topology.dp": "1", "ml.topology.dp.size": "4"})
    fragment = decoded(writer.step(1, {"a": 1.0})).observations["run-1"][0]

    assert fragment.writer.rank == 5
    assert fragment.writer.topology == (("dp", 1, 4),)


def test_events_keep_their_body_and_a_goodbye_its_totals() -> None:
    writer = FakeWriter()
    table = only(
        writer.event("ml.table", {"columns": ["a"], "rows": [[1], [2.5]]}, {"ml.name": "t", "ml.step": 3}), "logs"
    )
    image = only(writer.event("ml.image", b"\x89PNG", {"ml.name": "i"}), "logs")
    end = only(
        writer.event(
            "ml.writer.end", None, {"ml.status": "failed", "otel_ml.recorded": 9, "otel_ml.dropped": {"full": 2}}
        ),
        "logs",
    )

    assert isinstance(table, Event)
    assert (table.kind, table.axis, table.step, table.seq) == ("ml.table", "step", 3, 1)
    assert table.body == {"columns": ["a"], "rows": [[1], [2.5]]}
    assert isinstance(image, Event)
    assert (image.body, image.step, image.attributes["ml.name"]) == (b"\x89PNG", None, "i")
    assert isinstance(end, ShutdownMessage)
    assert (end.status, end.recorded, end.dropped) == ("failed", 9, {"full": 2})


def test_a_log_line_without_an_event_name_is_rejected_and_says_so() -> None:
    found = decoded(FakeWriter().event("", "just a line"), "logs")

    assert response("logs", found.rejections).partial_success.rejected_log_records == 1
    assert "event_name" in found.rejections.message


def test_a_span_keeps_ids_times_and_step() -> None:
    found = only(FakeWriter(rank=2).span("forward", 5), "traces")

    assert isinstance(found, Spans)
    (span,) = found.spans
    assert (span.trace_id, span.name, span.rank, span.axis, span.step) == (b"t".hex() * 16, "forward", 2, "step", 5)
    assert span.end_ns - span.start_ns == 1_000_000_000


@given(st.binary(min_size=1, max_size=200))
def test_no_bytes_make_the_decoder_fail_in_another_way_than_undecodable(body: bytes) -> None:
    for signal in ("metrics", "traces", "logs"):
        try:
            found = Decoder().protobuf(signal, body)
        except UndecodableError:
            continue
        assert found.body == body


def test_a_truncated_request_is_undecodable() -> None:
    body = FakeWriter().step(1, {"a": 1.0}).SerializeToString()

    with pytest.raises(UndecodableError, match="not an OTLP metrics request"):
        Decoder().protobuf("metrics", body[:-3])


@pytest.mark.parametrize("signal", ["metrics", "traces"])
def test_a_scope_whose_tag_was_damaged_on_the_way_is_undecodable_and_not_passed_over(signal: Signal) -> None:
    """It stands where a schema_url would: a text, which its bytes are not."""
    writer = FakeWriter()
    request = writer.step(1, {"loss": 0.5}) if signal == "metrics" else writer.span("forward", 1)
    body = bytearray(request.SerializeToString())
    (resource,) = getattr(request, "resource_" + ("metrics" if signal == "metrics" else "spans"))
    (scope, *_) = getattr(resource, "scope_" + ("metrics" if signal == "metrics" else "spans"))
    encoded = scope.SerializeToString()
    place = body.index(encoded)
    body[body.rindex(b"\x12", 0, place)] = 0x1A  # field 2 becomes field 3

    with pytest.raises(UndecodableError):
        Decoder().protobuf(signal, bytes(body))
