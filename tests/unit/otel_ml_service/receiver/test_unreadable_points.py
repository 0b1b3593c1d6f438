"""Points and values that are none: what is rejected, with which words, and what beside them is taken."""

from __future__ import annotations

import math
from typing import Any

import pytest

from otel_ml_service.aggregation.observation import Event, Fragment, Position, ThirdPartyPoints, Watermark
from otel_ml_service.receiver.decode import Decoded, Decoder
from tests.otlp import START, FakeWriter, third_party_request


def decoded(request: Any) -> Decoded:
    return Decoder().protobuf("metrics", request.SerializeToString())


def protocol_scope(request: Any, name: str) -> Any:
    """Return the scope of a request with one metric of the protocol, whose point says nothing yet."""
    [resource] = request.resource_metrics
    del resource.scope_metrics[0].metrics[:]
    del resource.scope_metrics[1:]
    [scope] = resource.scope_metrics
    scope.metrics.add(name=name).gauge.data_points.add(time_unix_nano=START)
    return scope


@pytest.mark.parametrize("is_ours", [True, False])
def test_a_point_without_a_value_is_rejected_by_its_name_and_the_others_are_taken(is_ours: bool) -> None:
    if is_ours:
        request = FakeWriter().step(7, {"loss": 0.25})
        request.resource_metrics[0].scope_metrics[0].metrics.add(name="empty").gauge.data_points.add()
    else:
        request = third_party_request([{"name": "loss", "value": 0.25}, {"name": "empty", "value": 1.0}])
        request.resource_metrics[0].scope_metrics[0].metrics[1].gauge.data_points[0].ClearField("as_double")

    found = decoded(request)

    assert dict(found.rejections.reasons) == {"a point of 'empty' has no value; expected as_double or as_int.": 1}
    points = [one for one in found.observations["run-1"] if isinstance(one, Fragment | ThirdPartyPoints)]
    assert [[key.name for key in one.partials.series] for one in points] == [["loss"]]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -1.0, -1])
@pytest.mark.parametrize("name", ["otel_ml.step.points", "otel_ml.position"])
def test_a_count_that_is_none_is_rejected_and_its_message_is_no_gap(name: str, value: float) -> None:
    request = FakeWriter().step(7, {"loss": 0.25})
    scope = protocol_scope(request, name)
    scope.scope.attributes[0].key = "ml.other" if name.endswith("position") else "ml.step"
    point = scope.metrics[0].gauge.data_points[0]
    if isinstance(value, int):
        point.as_int = value
    else:
        point.as_double = value

    found = decoded(request)

    assert dict(found.rejections.reasons) == {f"{value!r} is not a count.": 1}
    [nothing] = found.observations["run-1"]
    assert isinstance(nothing, Fragment)
    assert (nothing.seq, nothing.seq_points, len(nothing.partials.series)) == (1, 0, 0)


@pytest.mark.parametrize(("value", "count"), [(0, 0), (0.0, 0), (3.0, 3), (None, 0)])
def test_a_count_is_read_from_either_kind_of_number(value: float | None, count: int) -> None:
    request = FakeWriter().step(7, {"loss": 0.25})
    point = protocol_scope(request, "otel_ml.step.points").metrics[0].gauge.data_points[0]
    if isinstance(value, int):
        point.as_int = value
    elif value is not None:
        point.as_double = value

    [watermark] = decoded(request).observations["run-1"]

    assert isinstance(watermark, Watermark)
    assert (watermark.step, watermark.points) == (7, count)


def test_the_end_of_a_step_that_does_not_say_of_which_is_rejected() -> None:
    request = FakeWriter().step(7, {"loss": 0.25})
    scope = protocol_scope(request, "otel_ml.step.points")
    for place in (1, 0):  # the step and its axis
        del scope.scope.attributes[place]

    found = decoded(request)

    assert dict(found.rejections.reasons) == {"otel_ml.step.points needs ml.step on its scope.": 1}


@pytest.mark.parametrize(("named", "axis", "step"), [(False, None, None), (True, "rollout", 0)])
def test_a_heartbeat_of_step_0_without_an_axis_is_that_of_a_process_that_waits(
    named: bool, axis: str | None, step: int | None
) -> None:
    request = FakeWriter().step(7, {"loss": 0.25}, axis="rollout")
    scope = protocol_scope(request, "otel_ml.position")
    del scope.scope.attributes[0]
    if not named:
        del scope.scope.attributes[0]

    [position] = decoded(request).observations["run-1"]

    assert isinstance(position, Position)
    assert (position.axis, position.step) == (axis, step)


def test_bytes_and_nested_values_of_an_event_are_what_json_can_hold() -> None:
    body = {"blob": b"\x00\xff", "list": [1, [b"\x01"], {"deep": True}], "nothing": None}

    found = Decoder().protobuf("logs", FakeWriter().event("note", body, {"raw": b"\x00"}).SerializeToString())

    [event] = found.observations["run-1"]
    assert isinstance(event, Event)
    assert event.body == {"blob": "AP8=", "list": [1, ["AQ=="], {"deep": True}], "nothing": None}
    assert event.attributes["raw"] == "AA=="


@pytest.mark.parametrize("outermost", ["list", "mapping"])
def test_values_that_are_nested_deeper_than_those_of_any_program_are_cut(outermost: str) -> None:
    body: Any = "deep"
    for level in range(34):
        body = [body] if (level % 2 == 1) == (outermost == "list") else {"in": body}

    [event] = Decoder().protobuf("logs", FakeWriter().event("note", body).SerializeToString()).observations["run-1"]

    assert isinstance(event, Event)
    depth, value = 0, event.body
    while value:
        value, depth = value[0] if isinstance(value, list) else value["in"], depth + 1  # type: ignore[call-overload,index]
    assert (value, depth) == (None, 32)
