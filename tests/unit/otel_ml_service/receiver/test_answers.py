"""What a sender is answered, in the form in which it sent: who may come back is told so, and nobody else is."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import Any

import pytest
from google.protobuf import json_format
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse

from otel_ml_service.receiver.admission import Admission, OverloadedError, Stored
from otel_ml_service.receiver.decode import Decoded
from otel_ml_service.receiver.http_message import BadRequestError, Head, Response
from otel_ml_service.receiver.routes import Routes
from otel_ml_service.receiver.tokens import Tokens
from otel_ml_service.telemetry import Telemetry
from tests.otlp import FakeWriter, third_party_request

PROTOBUF, JSON, TEXT = "application/x-protobuf", "application/json", "text/plain; charset=utf-8"
INVALID, NOT_FOUND, EXHAUSTED, UNAVAILABLE, UNAUTHENTICATED = 3, 5, 8, 14, 16
"""Codes of google.rpc.Code."""

GOOD = FakeWriter().step(1, {"loss": 1.0}).SerializeToString()


class Runs:
    """One run, with what its console wrote.

    Args:
        settled_after: how often it has to be asked until its account is settled.
    """

    def __init__(self, settled_after: int = 0) -> None:
        self.asked = 0
        self._settled_after = settled_after

    @property
    def is_settled(self) -> bool:
        self.asked += 1
        assert self.asked < 1000, "it is waited for without end"
        return self.asked > self._settled_after

    def runs(self) -> list[Mapping[str, Any]]:
        return [{"id": "run-1"}]

    def run(self, experiment: str, writer: str | None, *, speaker: str | None) -> Mapping[str, Any] | None:
        return {"id": experiment, "writer": writer, "speaker": speaker} if experiment == "run-1" else None

    def console(self, experiment: str, taken: int) -> Mapping[str, Any] | None:
        return {"id": experiment, "after": taken} if experiment == "run-1" else None

    def measures(self) -> list[Any]:
        return []

    def notices(self, experiments: Iterable[str]) -> int:
        return 7 * len([*experiments])


def storing(decoded: Decoded, stored: Stored) -> None:
    stored(decoded, None)


def failing(decoded: Decoded, stored: Stored) -> None:
    stored(decoded, OSError("disk full"))


def breaking(decoded: Decoded, stored: Stored) -> None:
    raise RuntimeError("a defect")


def routes(store: Callable[[Decoded, Stored], None] = storing, **options: Any) -> Routes:
    telemetry = options.pop("telemetry", None) or Telemetry()
    options = {"runs": Runs(), "tokens": Tokens(), "version": "1.2", "any_host": True, **options}
    return Routes(Admission(store, telemetry, 10**6), telemetry=telemetry, **options)


def posted(body: bytes, media: str = PROTOBUF, store: Callable[[Decoded, Stored], None] = storing) -> Response:
    found: Future[Response] = Future()
    head = Head("POST", "/v1/metrics", {"content-type": media, "host": "localhost"}, keep_alive=True)
    routes(store).export(head, "metrics", body, lambda make: found.set_result(make()))
    return found.result(60)


def status_of(answer: Response) -> Status:
    """Return the body of an error, which OTLP says is a `Status` in the form of the request."""
    if answer.content_type == JSON:
        return json_format.Parse(answer.body, Status())
    assert answer.content_type == PROTOBUF
    return Status.FromString(answer.body)


SLUGS = {401: "unauthenticated", 404: "not-found", 413: "request-too-large", 503: "not-stored"}


def is_explained(answer: Response) -> bool:
    """Whether an error names its section of the catalogue."""
    said = answer.body.decode() if answer.content_type == TEXT else status_of(answer).message
    return f"(otel-ml explain {SLUGS.get(answer.status, 'bad-request')})" in said


def test_who_sends_a_large_request_to_a_service_that_stops_is_asked_to_send_it_again() -> None:
    stopping, answers = routes(), list[Response]()
    stopping.close()
    head = Head("POST", "/v1/metrics", {"content-type": PROTOBUF, "host": "localhost"}, keep_alive=True)

    stopping.export(head, "metrics", bytes(2**20), lambda make: answers.append(make()))

    [answer] = answers
    assert (answer.status, status_of(answer).code, answer.headers) == (503, UNAVAILABLE, {"retry-after": "1"})
    assert is_explained(answer)


def asked(target: str, method: str = "GET", *, runs: Runs | None = None, media: str = "") -> Response:
    head = Head(method, target, {"host": "localhost", "content-type": media}, keep_alive=True)
    return asyncio.run(routes(runs=runs or Runs()).look(head))


def test_of_what_is_taken_as_a_whole_the_answer_is_empty_and_says_how_many_notices_there_are() -> None:
    answer = posted(GOOD)
    in_json = posted(json_format.MessageToJson(FakeWriter().step(1, {"loss": 1.0})).encode(), JSON)

    assert (answer.status, answer.body, answer.content_type) == (200, b"", PROTOBUF)
    assert (in_json.status, json.loads(in_json.body), in_json.content_type) == (200, {}, JSON)
    assert answer.headers == in_json.headers == {"otel-ml-notices": "7"}


@pytest.mark.parametrize("media", [PROTOBUF, JSON])
def test_what_is_taken_in_part_says_how_much_is_not_and_why(media: str) -> None:
    request = third_party_request([{"name": "good", "value": 1.0}, *[{"name": "bad", "value": 1.0, "ml.step": -1}] * 2])
    body = request.SerializeToString() if media == PROTOBUF else json_format.MessageToJson(request).encode()

    answer = posted(body, media)

    said = ExportMetricsServiceResponse()
    json_format.Parse(answer.body, said) if media == JSON else said.ParseFromString(answer.body)
    assert (answer.status, answer.content_type, answer.headers) == (200, media, {"otel-ml-notices": "7"})
    assert said.partial_success.rejected_data_points == 2
    assert said.partial_success.error_message.startswith("2 × ml.step=-1 is not a step")


@pytest.mark.parametrize(
    ("store", "said"), [(failing, "Not stored: disk full"), (breaking, "Not stored: a defect")], ids=["disk", "defect"]
)
@pytest.mark.parametrize("media", [PROTOBUF, JSON])
def test_what_may_go_right_later_is_asked_for_again(
    store: Callable[[Decoded, Stored], None], said: str, media: str
) -> None:
    request = FakeWriter().step(1, {"loss": 1.0})
    body = request.SerializeToString() if media == PROTOBUF else json_format.MessageToJson(request).encode()

    answer = posted(body, media, store)

    assert (answer.status, answer.headers) == (503, {"retry-after": "1"})
    assert status_of(answer).code == UNAVAILABLE
    assert status_of(answer).message.startswith(said)
    assert is_explained(answer)


@pytest.mark.parametrize("media", [PROTOBUF, JSON])
def test_what_can_never_be_taken_is_not_asked_for_again(media: str) -> None:
    answer = posted(b"\xff\xff\xff", media)

    assert (answer.status, dict(answer.headers)) == (400, {})
    assert status_of(answer).code == INVALID
    assert status_of(answer).message.startswith("Cannot take this request: the body is not ")
    assert is_explained(answer)


@pytest.mark.parametrize(
    ("method", "path", "headers", "status", "code", "reason"),
    [
        ("POST", "/v1/metrics", {"authorization": "Bearer no"}, 401, UNAUTHENTICATED, "unauthenticated"),
        ("POST", "/v1/metrics", {"host": "evil.example"}, 421, INVALID, "misdirected"),
        ("PUT", "/v1/traces", {}, 405, INVALID, "wrong method"),
        ("GET", "/v1/logs", {}, 405, INVALID, "wrong method"),
    ],
)
def test_what_is_refused_before_its_body_is_read_says_why_in_the_form_of_the_request(
    method: str, path: str, headers: dict[str, str], status: int, code: int, reason: str
) -> None:
    telemetry = Telemetry()

    answer = refusal_of(method, path, headers, telemetry)

    assert answer is not None
    assert (answer.status, status_of(answer).code, telemetry.value("refused", reason=reason)) == (status, code, 1)
    assert is_explained(answer)


def test_what_is_neither_protobuf_nor_json_is_refused_in_a_text() -> None:
    telemetry = Telemetry()

    answer = refusal_of("POST", "/v1/metrics", {"content-type": "text/csv; charset=utf-8"}, telemetry)

    assert answer is not None
    assert (answer.status, answer.content_type) == (415, TEXT)
    assert b"got 'text/csv'" in answer.body
    assert telemetry.value("refused", reason="wrong content type") == 1


@pytest.mark.parametrize(
    ("method", "path", "headers"),
    [
        ("POST", "/v1/metrics", {}),
        ("POST", "/v1/metrics", {"host": "127.0.0.1:4318"}),
        ("POST", "/v1/logs", {"content-type": "application/json; charset=utf-8"}),
        ("PUT", "/healthz", {}),  # of other paths it is told when they are looked at
    ],
)
def test_what_may_be_taken_is_not_refused_before_its_body_is_read(
    method: str, path: str, headers: dict[str, str]
) -> None:
    assert refusal_of(method, path, headers, Telemetry()) is None


def refusal_of(method: str, path: str, headers: dict[str, str], telemetry: Telemetry) -> Response | None:
    said = {"host": "localhost", "content-type": PROTOBUF, "authorization": "Bearer secret", **headers}
    asked_of = routes(tokens=Tokens(["secret"]), any_host=False, telemetry=telemetry)
    return asked_of.refusal(Head(method, path, said, keep_alive=True))


@pytest.mark.parametrize(("status", "code"), [(400, INVALID), (413, EXHAUSTED), (431, INVALID)])
def test_what_could_not_be_read_to_its_end_is_answered_as_text_where_not_even_its_form_is_known(
    status: int, code: int
) -> None:
    head, telemetry = Head("POST", "/v1/metrics", {"content-type": PROTOBUF}, keep_alive=True), Telemetry()
    known, unknown = (
        routes(telemetry=telemetry).unreadable(found, BadRequestError(status, "too odd.")) for found in (head, None)
    )

    assert (known.status, status_of(known).code) == (status, code)
    assert (unknown.status, unknown.content_type) == (status, TEXT)
    assert unknown.body.startswith(b"too odd.")
    assert unknown.body.endswith(b"\n")
    assert telemetry.value("refused", reason="too large" if status == 413 else "malformed") == 2
    assert is_explained(known)
    assert is_explained(unknown)


def test_what_finds_no_room_is_told_to_come_back() -> None:
    head = Head("POST", "/v1/metrics", {"content-type": PROTOBUF}, keep_alive=True)

    answer = routes().overloaded(head)

    assert (answer.status, answer.headers, status_of(answer).code) == (503, {"retry-after": "1"}, UNAVAILABLE)
    assert "Not stored" not in status_of(answer).message


def test_an_overload_is_said_in_its_own_words() -> None:
    def full(decoded: Decoded, stored: Stored) -> None:
        stored(decoded, OverloadedError("As much as may be."))

    assert status_of(posted(GOOD, store=full)).message.startswith("As much as may be.")


@pytest.mark.parametrize(
    ("target", "content"),
    [
        ("/healthz", {"service": "otel_ml", "version": "1.2"}),
        ("/otel_ml/runs", [{"id": "run-1"}]),
        ("/otel_ml/runs/run-1", {"id": "run-1", "writer": None, "speaker": None}),
        ("/otel_ml/runs/run-1?writer=w&speaker=s", {"id": "run-1", "writer": "w", "speaker": "s"}),
        ("/otel_ml/runs/run-1/console", {"id": "run-1", "after": 0}),
        ("/otel_ml/runs/run-1/console?after=12", {"id": "run-1", "after": 12}),
        ("/otel_ml/runs/run-1/console?after=-12", {"id": "run-1", "after": 0}),
        (f"/otel_ml/runs/run-1/console?after={'9' * 18}", {"id": "run-1", "after": int("9" * 18)}),
        (f"/otel_ml/runs/run-1/console?after={'9' * 19}", {"id": "run-1", "after": 0}),
        ("/otel_ml/runs/run-1/console?after=²", {"id": "run-1", "after": 0}),
    ],
)
def test_who_asks_is_told(target: str, content: object) -> None:
    answer = asked(target)

    assert (answer.status, json.loads(answer.body), answer.content_type) == (200, content, JSON)
    assert asked(target, "HEAD") == answer


@pytest.mark.parametrize(
    ("target", "method", "status", "said"),
    [
        ("/otel_ml/runs/run-2", "GET", 404, "No run 'run-2' here."),
        ("/otel_ml/runs/run-2/console", "GET", 404, "The service of 'run-2' prints its console itself"),
        ("/nowhere", "GET", 404, "Nothing is at '/nowhere'."),
        ("/v1/metrics/v1/metrics", "POST", 404, "Nothing is at '/v1/metrics/v1/metrics'."),
        ("/healthz", "POST", 405, "/healthz takes GET, not POST."),
        ("/otel_ml/runs/run-1", "DELETE", 405, "/otel_ml/runs/run-1 takes GET, not DELETE."),
    ],
)
def test_who_asks_for_what_is_not_there_is_told_what_is(target: str, method: str, status: int, said: str) -> None:
    answer = asked(target, method)

    assert (answer.status, answer.content_type) == (status, TEXT)
    assert answer.body.decode().startswith(said)
    assert is_explained(answer)
    assert status_of(asked(target, method, media=JSON)).code == {404: NOT_FOUND, 405: INVALID}[status]


@pytest.mark.parametrize(
    ("target", "settled_after", "least"),
    [
        ("/otel_ml/runs", 3, 4),
        ("/otel_ml/runs/run-1", 3, 4),
        ("/otel_ml/runs/run-1", 0, 1),
        ("/otel_ml/runs/run-1", 10**6, 2),  # it is told what is known by then
        ("/otel_ml/runs/run-1/console", 3, 0),
        ("/healthz", 3, 0),
    ],
)
def test_an_account_waits_a_moment_for_what_was_just_acknowledged_and_nothing_else_does(
    target: str, settled_after: int, least: int
) -> None:
    runs = Runs(settled_after)

    assert asked(target, runs=runs).status == 200

    assert least <= runs.asked <= (settled_after + 1 if least else 0)


@pytest.mark.parametrize(("body", "reason"), [(b"\xff\xff\xff", "undecodable"), (bytes(65 * 2**20), "too large")])
def test_what_cannot_be_taken_is_counted_with_its_reason(body: bytes, reason: str) -> None:
    telemetry = Telemetry()
    answers: Future[Response] = Future()
    head = Head("POST", "/v1/metrics", {"content-type": PROTOBUF, "content-encoding": "gzip"}, keep_alive=True)

    routes(telemetry=telemetry).export(
        head, "metrics", gzip.compress(body, 1, mtime=0), lambda make: answers.set_result(make())
    )

    assert answers.result(60).status == (400 if reason == "undecodable" else 413)
    assert telemetry.value("refused", reason=reason) == 1
