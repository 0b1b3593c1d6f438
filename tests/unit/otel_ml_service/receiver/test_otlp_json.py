"""OTLP/JSON says the same as protobuf; where it differs from protobuf's own mapping, OTLP's rules count."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable
from typing import Any

import pytest
from google.protobuf import json_format

from otel_ml_service.aggregation.observation import Event, Spans, ThirdPartyPoints
from otel_ml_service.receiver.decode import Decoder, Signal
from otel_ml_service.receiver.partial_success import UndecodableError
from tests.otlp import FakeWriter, third_party_request


def as_json(message: Any) -> dict[str, Any]:
    content: dict[str, Any] = json_format.MessageToDict(message, use_integers_for_enums=True)
    return content


@pytest.mark.parametrize(
    ("signal", "make"),
    [
        ("metrics", lambda writer: writer.step(3, {"loss": 0.5, "reward": -1.0})),
        (
            "metrics",
            lambda _: third_party_request([{"name": "Inf", "value": 0.5, "of": "+Inf", "traceId": "Infinity"}]),
        ),
        ("traces", lambda writer: writer.span("forward", 3)),
        ("logs", lambda writer: writer.event("ml.text", "-Inf", {"ml.name": "abcdef", "ml.step": 3})),
        ("logs", lambda writer: writer.goodbye("failed", {"full": 3})),
    ],
)
def test_json_decodes_to_the_same_as_protobuf(signal: Signal, make: Callable[[FakeWriter], Any]) -> None:
    request = make(FakeWriter())
    content = as_json(request)
    for span in content.get("resourceSpans", [{}])[0].get("scopeSpans", [{}])[0].get("spans", []):
        span |= {key: base64.b64decode(span[key]).hex() for key in ("traceId", "spanId")}

    found = Decoder().json(signal, json.dumps({**content, "aFieldOfTheFuture": 1}).encode())

    assert found.body == request.SerializeToString()
    assert repr(found.observations) == repr(Decoder().protobuf(signal, found.body).observations)
    assert found.rejections.total == 0


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "+Inf", "-Inf"])
def test_json_accepts_non_finite_numbers_as_text(text: str) -> None:
    content = as_json(third_party_request([{"name": "a", "value": 0.0}]))
    content["resourceMetrics"][0]["scopeMetrics"][0]["metrics"][0]["gauge"]["dataPoints"][0]["asDouble"] = text

    (point,) = Decoder().json("metrics", json.dumps(content).encode()).observations["run-1"]

    assert isinstance(point, ThirdPartyPoints)
    value = float(point.partials.stats[0, 1])
    expected = float(text.replace("Infinity", "inf"))
    assert value == expected or (math.isnan(value) and math.isnan(expected))


def test_json_ids_are_hexadecimal_and_bytes_are_base64() -> None:
    content = as_json(FakeWriter().span("s", 1))
    span = content["resourceSpans"][0]["scopeSpans"][0]["spans"][0]
    span["traceId"], span["spanId"] = (b"t" * 16).hex(), (b"s" * 8).hex()
    image = as_json(FakeWriter().event("ml.image", b"\x00\xff"))
    body = image["resourceLogs"][0]["scopeLogs"][0]["logRecords"][0]["body"]

    (spans,) = Decoder().json("traces", json.dumps(content).encode()).observations["run-1"]
    (event,) = Decoder().json("logs", json.dumps(image).encode()).observations["run-1"]

    assert isinstance(spans, Spans)
    assert spans.spans[0].trace_id == (b"t" * 16).hex()
    assert body == {"bytesValue": base64.b64encode(b"\x00\xff").decode()}
    assert isinstance(event, Event)
    assert event.body == b"\x00\xff"


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf, 0.25])
def test_json_accepts_the_literals_that_python_writes_for_non_finite_numbers(number: float) -> None:
    content = as_json(third_party_request([{"name": "a", "value": 0.0}]))
    content["resourceMetrics"][0]["scopeMetrics"][0]["metrics"][0]["gauge"]["dataPoints"][0]["asDouble"] = number

    (point,) = Decoder().json("metrics", json.dumps(content).encode()).observations["run-1"]

    assert isinstance(point, ThirdPartyPoints)
    assert float(point.partials.stats[0, 1]) == pytest.approx(number, nan_ok=True)


def test_what_json_says_is_null_or_a_truth_value_is_read_as_protobuf_has_it() -> None:
    content = as_json(third_party_request([{"name": "a", "value": 0.5}], kind="sum"))
    metric = content["resourceMetrics"][0]["scopeMetrics"][0]["metrics"][0]
    metric["description"] = metric["sum"]["dataPoints"][0]["startTimeUnixNano"] = None
    metric["sum"]["isMonotonic"] = True

    (point,) = Decoder().json("metrics", json.dumps(content).encode()).observations["run-1"]

    assert isinstance(point, ThirdPartyPoints)
    assert (point.monotonic, point.starts, float(point.partials.stats[0, 1])) == (True, (0,), 0.5)


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"resourceMetrics": 1}', b"\xff\xfe", b"[" * 100_000])
def test_json_that_is_none_of_ours_is_undecodable(body: bytes) -> None:
    with pytest.raises(UndecodableError, match="not OTLP/JSON"):
        Decoder().json("metrics", body)
