"""What an error over gRPC means for the request it answers (OTLP specification, “Failures”)."""

from __future__ import annotations

import re
from collections.abc import Iterable

from otel_ml._internal.transport.answer import Answer, denied
from otel_ml.exceptions import WireError
from otel_ml.wire.protobuf import fields

__all__ = ["answer_of"]

RETRYABLE = frozenset({"CANCELLED", "DEADLINE_EXCEEDED", "ABORTED", "OUT_OF_RANGE", "UNAVAILABLE", "DATA_LOSS"})
"""Status codes after which the same request may be sent again; RESOURCE_EXHAUSTED only where the server says when."""

DENIED = frozenset({"UNAUTHENTICATED", "PERMISSION_DENIED"})

_SIZED = frozenset({"RESOURCE_EXHAUSTED", "OUT_OF_RANGE", "INVALID_ARGUMENT"})
_TOO_LARGE = re.compile(
    r"(?i)larger than|too large|exceeds?\b.{0,40}\b(?:size|length|bytes|limit of \d)"
    r"|\bmax\w* (?:message )?(?:size|length)"
)
"""What servers say of a message beyond their limit: C++, Python and Go “larger than max”, Java and .NET “exceeds”."""

_NO_GRPC = re.compile(
    r"(?i)http1\.x server|missing selected ALPN|HTTP/1\.|unexpected.*content-type|Failed parsing HTTP/2"
)
"""What grpcio says where something speaks, but not gRPC."""


def answer_of(code: str, details: str, trailers: Iterable[tuple[str, str | bytes]], where: str) -> Answer:
    """Return what a sender can act on.

    Args:
        code: name of the status code.
        details: what the server said, or grpcio of the connection.
        trailers: metadata after the answer.
        where: host and port.

    Examples:
        >>> answer_of("DEADLINE_EXCEEDED", "Deadline Exceeded", (), "gateway:4317").timed_out
        True
        >>> answer_of("UNAVAILABLE", "certificate verify failed", (), "gateway:4317").timed_out
        False
    """
    reason = f"{code}: {details}"
    # Before the code counts: after OUT_OF_RANGE the same request would be sent again and again.
    if code in _SIZED and _TOO_LARGE.search(details):
        return Answer("too_large", reason=reason)
    if code in {"UNAVAILABLE", "UNKNOWN", "INTERNAL"} and _NO_GRPC.search(details):
        said = f"{where} speaks HTTP/1.1, not gRPC. Unset OTEL_EXPORTER_OTLP_PROTOCOL, or use gRPC's port, usually 4317"
        return Answer("retry", reason=said, obstacle="other-protocol")
    wish = _retry_delay(trailers)
    if code in RETRYABLE or (code == "RESOURCE_EXHAUSTED" and wish is not None):
        return Answer("retry", reason=reason, retry_after=wish, timed_out=code == "DEADLINE_EXCEEDED")
    return denied(reason) if code in DENIED else Answer("refused", reason=reason)


def _retry_delay(trailers: Iterable[tuple[str, str | bytes]]) -> float | None:
    """Return the seconds of a `google.rpc.RetryInfo`, which stands in the details of a `google.rpc.Status`."""
    status = next((value for key, value in trailers if key == "grpc-status-details-bin"), b"")
    try:
        for number, detail in fields(status if isinstance(status, bytes) else b""):
            # Status.details is field 3, each an Any: type_url 1, value 2. RetryInfo.retry_delay is 1, a Duration:
            # seconds 1, nanos 2.
            if number == 3 and isinstance(detail, bytes):
                found = dict(fields(detail))
                # The URL of a type: before its name may stand any host.
                if bytes(found.get(1, b"")).endswith(b"google.rpc.RetryInfo"):
                    return _seconds(dict(fields(bytes(found.get(2, b"")))).get(1, b""))
    except (WireError, TypeError):
        return None
    return None


def _seconds(duration: int | bytes) -> float:
    parts = dict(fields(bytes(duration)))
    return min(3600.0, int(parts.get(1, 0)) + int(parts.get(2, 0)) / 1e9)
