"""Sentences about answers that somebody has to do something about."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import get_args

from otel_ml._internal.error_reporting import Say
from otel_ml._internal.transport.answer import Answer, Obstacle
from otel_ml._internal.transport.export_requests import Request
from otel_ml.exceptions import WireError
from otel_ml.quantities import seconds, size
from otel_ml.wire.attributes import NAME
from otel_ml.wire.protobuf import fields
from otel_ml.wire.spool_format import Kind

__all__ = ["OBSTACLES", "described", "report_send_error", "report_too_large"]

OBSTACLES: frozenset[str] = frozenset(get_args(Obstacle))
"""None of them goes away while one waits."""

_KEPT = "What is recorded is kept on this host, and sent once that is put right."

_AWAY_S = 30.0
"""How long nothing is taken before that is said: a receiver that is started again is back sooner."""


def report_send_error(answer: Answer, say: Say, *, failing_s: float = 0.0) -> None:
    """Say why nothing arrives, and what becomes of it meanwhile.

    Args:
        answer: the newest one.
        say: says a sentence.
        failing_s: seconds since the first of the answers in a row that acknowledged nothing.
    """
    reason = answer.reason
    if answer.obstacle == "receiver-denied":
        say("receiver-denied", f"The receiver does not take the credentials of this process: {reason}. {_KEPT}")
    elif answer.obstacle == "not-otlp":
        say("not-otlp", f"What answers at the endpoint is not an OTLP receiver: {reason}. {_KEPT}")
    elif answer.obstacle == "other-protocol":
        say("other-protocol", f"The endpoint speaks another protocol: {reason}. {_KEPT}")
    elif failing_s >= _AWAY_S:
        say("receiver-away", f"For {seconds(failing_s)} no receiver has taken what is recorded: {reason}. {_KEPT}")


def report_too_large(request: Request, answer: Answer, say: Say) -> None:
    """Say what is left out, since no request can be made small enough for the receiver."""
    say(
        "request-too-large",
        f"The receiver takes no request of {size(request.length)} ({answer.reason}). Lost, since it cannot be cut "
        f"any smaller: {described(request)}. Raise the receiver's limit (Collector: max_recv_msg_size_mib for gRPC, "
        "max_request_body_size for HTTP; nginx: client_max_body_size), or record less in one call.",
    )


def described(request: Request) -> str:
    """Return what a request holds that cannot be cut."""
    count = request.records()
    if request.kind == "L" and count == 1:
        return f"the event {_event(request) or '(unnamed)'}"
    return f"{count:,} {_NAMES[request.kind]}"


_NAMES: Mapping[Kind, str] = {"M": "data points", "S": "spans", "L": "events"}


def _event(request: Request) -> str:
    """Return the kind of an event, and the name the user gave it."""
    try:
        return " ".join(_names(b"".join(piece.payload() for piece in request.pieces)))
    except WireError:
        return ""


def _names(payload: bytes) -> Iterator[str]:
    # ScopeLogs is field 2, its LogRecords are 2: attributes 6, event_name 12. A KeyValue has key 1 and value 2, whose
    # string is 1.
    for record in _messages(payload, 2, 2):
        yield from (text.decode("utf-8", "replace") for text in _messages(record, 12))
        # The user's name of it is among the attributes, `event_name` says its kind.
        for attribute in _messages(record, 6):
            if next(_messages(attribute, 1), b"") == NAME.encode():
                yield from (repr(text.decode("utf-8", "replace")) for text in _messages(attribute, 2, 1))


def _messages(body: bytes, number: int, *inner: int) -> Iterator[bytes]:
    for found, value in fields(body):
        if found == number and isinstance(value, bytes):
            if inner:
                yield from _messages(value, *inner)
            else:
                yield value
