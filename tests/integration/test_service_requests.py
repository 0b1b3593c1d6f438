"""What a service answers: to every form of a request, and to what it can never take."""

from __future__ import annotations

import gzip
import time

import pytest
from google.protobuf import json_format

from otel_ml.wire.boot_clock import seconds_since_boot
from otel_ml.wire.rendezvous import boot_id
from otel_ml_exporters.testing import RecordingExporter
from tests.integration.conftest import Bench
from tests.integration.steps import rows
from tests.otlp import FakeWriter, third_party_request
from tests.waiting import eventually


@pytest.mark.parametrize("form", ["gzip", "json", "json and gzip", "chunked"])
def test_every_form_of_a_request_is_understood(bench: Bench, recording: RecordingExporter, form: str) -> None:
    sender = bench.sender(bench.service({"recording": lambda: recording}))
    message = FakeWriter().step(1, {"loss": 0.5})
    headers = {"content-type": "application/json" if "json" in form else "application/x-protobuf"}
    body = (
        json_format.MessageToJson(message, use_integers_for_enums=True).encode()
        if "json" in form
        else message.SerializeToString()
    )
    if "gzip" in form:
        body, headers["content-encoding"] = gzip.compress(body), "gzip"
    if form == "chunked":
        pieces = [body[:7], body[7:]]
        sender.connection.request("POST", "/v1/metrics", iter(pieces), headers, encode_chunked=True)
        answer = sender.connection.getresponse()
        assert (answer.status, answer.read()) == (200, b"")
    else:
        answered = sender.request("POST", "/v1/metrics", body, headers)
        assert (answered.status, answered.headers["content-type"]) == (200, headers["content-type"])

    eventually(lambda: rows(recording) == {1: {"loss": 0.5}})


@pytest.mark.parametrize(
    ("path", "body", "headers", "status", "text"),
    [
        ("/v1/metrics", b"\xff\xff\xff", {}, 400, "not an OTLP metrics request"),
        ("/v1/metrics", FakeWriter().step(1, {"a": 1.0}).SerializeToString()[:-2], {}, 400, "not an OTLP"),
        ("/v1/metrics", b"not gzip", {"content-encoding": "gzip"}, 400, "damaged"),
        ("/v1/metrics", b"x", {"content-encoding": "br"}, 415, "use gzip"),
        ("/v1/metrics", b"{", {"content-type": "application/json"}, 400, "not OTLP/JSON"),
        ("/v1/metrics", b"x", {"content-type": "text/plain"}, 415, "application/x-protobuf"),
        ("/v1/metric", b"x", {}, 404, "Nothing is at '/v1/metric'"),
        ("/v1/metrics/", b"x", {}, 404, "it answers at /v1/metrics, "),
    ],
)
def test_a_request_that_can_never_be_taken_is_refused_for_good(
    bench: Bench, path: str, body: bytes, headers: dict[str, str], status: int, text: str
) -> None:
    sender = bench.sender(bench.service())

    answer = sender.request("POST", path, body, {"content-type": "application/x-protobuf", **headers})

    assert answer.status == status
    assert text in answer.body.decode("utf-8", "replace")


def test_a_compressed_bomb_is_refused_with_the_limit_and_the_service_goes_on(bench: Bench) -> None:
    service = bench.service()
    bomb = gzip.compress(bytes(70 * 2**20), compresslevel=1)

    answer = bench.sender(service).send("metrics", bomb, {"content-encoding": "gzip"})

    assert (answer.status, b"64 MiB" in answer.body) == (413, True)
    assert bench.sender(service).request("GET", "/healthz").json["service"] == "otel_ml"


def test_a_request_that_is_too_large_is_refused_before_it_is_read(bench: Bench) -> None:
    service = bench.service()
    sender = bench.sender(service)
    sender.connection.putrequest("POST", "/v1/metrics")
    sender.connection.putheader("content-length", str(65 * 2**20))
    sender.connection.endheaders()

    answer = sender.connection.getresponse()

    assert answer.status == 413
    assert b"64 MiB" in answer.read()


def test_who_asks_is_told_the_time_of_this_machine(bench: Bench) -> None:
    sender = bench.sender(bench.service({}))
    before = seconds_since_boot(), time.time()

    told = sender.request("GET", "/otel_ml/clock").json

    after = seconds_since_boot(), time.time()
    assert told["boot"] == boot_id()
    assert before[0] <= told["boot_time"] <= after[0]
    assert before[1] <= told["time"] <= after[1]


def test_points_without_an_experiment_are_a_partial_success_that_names_the_key(bench: Bench) -> None:
    sender = bench.sender(bench.service())
    message = third_party_request([{"name": "a", "value": 1.0}], resource={"service.name": "x"})
    body = json_format.MessageToJson(message, use_integers_for_enums=True).encode()

    answer = sender.request("POST", "/v1/metrics", body, {"content-type": "application/json"})

    assert answer.status == 200
    assert answer.json["partialSuccess"]["rejectedDataPoints"] == "1"
    assert "ml.experiment.id" in answer.json["partialSuccess"]["errorMessage"]
    assert b'otel_ml_rejected_total{reason="' in sender.request("GET", "/metrics").body


@pytest.mark.parametrize("path", ["/v1/metrics", "/healthz", "/metrics", "/otel_ml/runs", "/otel_ml/clock"])
def test_without_the_token_nothing_is_answered(bench: Bench, path: str) -> None:
    service = bench.service(token="a secret")
    method = "POST" if path.startswith("/v1") else "GET"

    statuses = [
        bench.sender(service, token).request(method, path, b"", {"content-type": "application/x-protobuf"}).status
        for token in ("", "wrong", "a secret")
    ]

    assert statuses == [401, 401, 200]
