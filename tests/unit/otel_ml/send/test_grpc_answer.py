"""What a sender makes of an error over gRPC; the oracle of its details are Google's own messages."""

from __future__ import annotations

import pytest
from google.protobuf import any_pb2, duration_pb2
from google.rpc import error_details_pb2, status_pb2

from otel_ml._internal.transport.grpc_answer import answer_of


def trailers(*details: object, key: str = "grpc-status-details-bin") -> list[tuple[str, str | bytes]]:
    status = status_pb2.Status(code=8, message="slow down")
    for detail in details:
        packed = any_pb2.Any()
        packed.Pack(detail)
        status.details.append(packed)
    return [("date", "today"), (key, status.SerializeToString())]


def retry_after(seconds: int, nanos: int = 0) -> error_details_pb2.RetryInfo:
    return error_details_pb2.RetryInfo(retry_delay=duration_pb2.Duration(seconds=seconds, nanos=nanos))


@pytest.mark.parametrize(
    "code", ["CANCELLED", "DEADLINE_EXCEEDED", "ABORTED", "OUT_OF_RANGE", "UNAVAILABLE", "DATA_LOSS"]
)
def test_what_may_pass_is_sent_again(code: str) -> None:
    answer = answer_of(code, "later", (), "gateway:4317")

    assert (answer.outcome, answer.reason, answer.retry_after) == ("retry", f"{code}: later", None)
    assert answer.timed_out == (code == "DEADLINE_EXCEEDED")


@pytest.mark.parametrize("code", ["INVALID_ARGUMENT", "UNIMPLEMENTED", "INTERNAL", "UNKNOWN", "RESOURCE_EXHAUSTED"])
def test_what_will_never_be_taken_is_not(code: str) -> None:
    answer = answer_of(code, "no", (), "gateway:4317")

    assert (answer.outcome, answer.reason, answer.timed_out) == ("refused", f"{code}: no", False)


@pytest.mark.parametrize("code", ["UNAUTHENTICATED", "PERMISSION_DENIED"])
def test_who_is_not_let_in_has_to_show_something_else(code: str) -> None:
    answer = answer_of(code, "who are you", (), "gateway:4317")

    assert (answer.outcome, answer.reason) == ("retry", f"{code}: who are you")
    assert (answer.retry_after, answer.obstacle) == (30.0, "receiver-denied")


@pytest.mark.parametrize("code", ["RESOURCE_EXHAUSTED", "OUT_OF_RANGE", "INVALID_ARGUMENT"])
@pytest.mark.parametrize(
    "said",
    [
        "Received message larger than max (5000000 vs. 4194304)",
        "grpc: received message after decompression larger than max 4194304",
        "gRPC message exceeds maximum size 4194304: 5000000",
        "the request exceeds the limit of 4194304",
        "message too large",
        "max message size is 4 MiB",
    ],
)
def test_a_message_beyond_the_servers_limit_is_too_large(code: str, said: str) -> None:
    answer = answer_of(code, said, trailers(retry_after(1)), "gateway:4317")

    assert (answer.outcome, answer.reason) == ("too_large", f"{code}: {said}")


def test_only_codes_of_a_size_are_about_one() -> None:
    assert answer_of("UNAVAILABLE", "the backlog is too large", (), "gateway:4317").outcome == "retry"


@pytest.mark.parametrize("code", ["UNAVAILABLE", "UNKNOWN", "INTERNAL"])
@pytest.mark.parametrize("said", ["Trying to connect an http1.x server", "Failed parsing HTTP/2", "HTTP/1.1 400"])
def test_what_speaks_another_protocol_is_named_with_what_to_do(code: str, said: str) -> None:
    answer = answer_of(code, said, (), "gateway:4318")

    assert (answer.outcome, answer.obstacle) == ("retry", "other-protocol")
    assert answer.reason == (
        "gateway:4318 speaks HTTP/1.1, not gRPC. Unset OTEL_EXPORTER_OTLP_PROTOCOL, or use gRPC's port, usually 4317"
    )


def test_another_code_says_nothing_of_the_protocol() -> None:
    assert answer_of("UNIMPLEMENTED", "HTTP/1.1 400", (), "gateway:4318").outcome == "refused"


@pytest.mark.parametrize(
    ("wish", "seconds"),
    [((7, 0), 7.0), ((0, 250_000_000), 0.25), ((3600, 0), 3600.0), ((3601, 0), 3600.0), ((0, 0), 0.0)],
)
@pytest.mark.parametrize("code", ["RESOURCE_EXHAUSTED", "UNAVAILABLE"])
def test_a_server_that_says_when_to_come_back_is_asked_then(code: str, wish: tuple[int, int], seconds: float) -> None:
    other = error_details_pb2.DebugInfo(detail="busy")

    answer = answer_of(code, "slow down", trailers(other, retry_after(*wish)), "gateway:4317")

    assert (answer.outcome, answer.retry_after) == ("retry", seconds)


@pytest.mark.parametrize(
    "found",
    [
        trailers(error_details_pb2.DebugInfo(detail="busy")),
        trailers(),
        trailers(retry_after(5), key="other-bin"),
        [("grpc-status-details-bin", "a text")],
        [("grpc-status-details-bin", b"\x1a\xff\xff")],
        [("grpc-status-details-bin", b"\xff\xff\xff")],
    ],
    ids=["another detail", "no detail", "another trailer", "text", "cut off", "no protobuf"],
)
def test_without_a_wish_that_can_be_read_there_is_none(found: list[tuple[str, str | bytes]]) -> None:
    assert answer_of("UNAVAILABLE", "later", found, "gateway:4317").retry_after is None
    assert answer_of("RESOURCE_EXHAUSTED", "no", found, "gateway:4317").outcome == "refused"
