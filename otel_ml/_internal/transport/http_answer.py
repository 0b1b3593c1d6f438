"""What an answer over HTTP means for the request it answers (OTLP specification, “OTLP/HTTP Response”).

Only an OTLP answer acknowledges: captive portals, proxies, an ingress' default backend and wrong ports answer 200 too.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass

from otel_ml._internal.transport.answer import Answer, accepted, denied
from otel_ml.exceptions import WireError
from otel_ml.wire.protobuf import fields

__all__ = ["HttpAnswer", "answer_of"]

ACKNOWLEDGING = frozenset({200, 204})
"""OTLP has 200 only; Grafana's Loki and its cloud answer what they have stored with 204. Any other 2xx is of something
that puts requests in a queue, makes a file of them, or does not know what they are: nobody has the points."""

RETRYABLE = frozenset({429, 502, 503, 504})
"""Status codes after which the same request may be sent again (OTLP specification)."""

DENIED = frozenset({401, 403, 407})
OTHER_PROTOCOL = frozenset({426, 464})
"""Upgrade Required, and what AWS' load balancers say to HTTP/1.1 in front of gRPC."""

_TOO_LARGE = re.compile(rb"(?i)too large|larger than|exceeds? the (?:maximum|limit)")
"""What the 400 of receivers that have no 413 says: the Collector among them."""

_OTLP_TYPES = frozenset({"application/x-protobuf", "application/protobuf", ""})


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """A whole answer.

    Attributes:
        headers: by name in lower case.
        content: without its encoding.
    """

    status: int
    headers: Mapping[str, str]
    content: bytes

    @property
    def type(self) -> str:
        """What the content is said to be, without parameters."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()


def answer_of(answer: HttpAnswer) -> Answer:
    """Return what a sender can act on."""
    if answer.status in ACKNOWLEDGING:
        return _acknowledged(answer) or _no_otlp(answer)
    # A redirect is not followed; where it leads is said.
    if 200 <= answer.status < 400:
        return _no_otlp(answer)
    reason = f"HTTP {answer.status}{_said(answer.content)}"
    if answer.status == 413 or (answer.status == 400 and _TOO_LARGE.search(answer.content)):
        return Answer("too_large", reason=reason)
    if answer.status in RETRYABLE:
        return Answer("retry", reason=reason, retry_after=_retry_after(answer.headers.get("retry-after")))
    if answer.status in OTHER_PROTOCOL or (answer.status == 400 and b"HTTP/2" in answer.content):
        return Answer("retry", reason=reason, obstacle="other-protocol")
    return denied(reason) if answer.status in DENIED else Answer("refused", reason=reason)


def _acknowledged(answer: HttpAnswer) -> Answer | None:
    """Return the acknowledgement, or None where an otherwise fine answer is not one of OTLP's."""
    notices = answer.headers.get("otel-ml-notices", "")
    try:
        if answer.type == "application/json" and answer.content.strip():
            rejected, message = _partial_success(answer.content)
            return Answer("ok", rejected=rejected, message=message, notices=_count(notices))
        if answer.content and answer.type not in _OTLP_TYPES:
            return None
        return accepted(answer.content, _count(notices))
    except (WireError, ValueError, OverflowError, RecursionError):  # JSON may hold what is infinite, or nested for ever
        return None


def _partial_success(content: bytes) -> tuple[int, str]:
    """Return how many records an `Export…ServiceResponse` in JSON rejects, and why.

    Raises:
        ValueError: it is none.
    """
    response = json.loads(content)
    partial = (response.get("partialSuccess") or {}) if isinstance(response, dict) else None
    # Other servers answer JSON, too, such as {"status": "ok"}: that acknowledges nothing.
    if not isinstance(partial, dict) or response.keys() - {"partialSuccess"}:
        raise ValueError("expected an Export…ServiceResponse")
    counts = [partial[key] for key in ("rejectedDataPoints", "rejectedSpans", "rejectedLogRecords") if key in partial]
    # Two zeros: without a count max() would get one number, and fail.
    return max(0, *(int(count) for count in counts), 0), str(partial.get("errorMessage") or "")


def _no_otlp(answer: HttpAnswer) -> Answer:
    where = answer.headers.get("location")
    if where is not None and answer.status >= 300:
        said = f" to {_printable(where.encode('latin-1', 'replace'))}"
    else:
        said = f" {answer.type}{_said(answer.content)}" if answer.content else ""
    return Answer("retry", reason=f"HTTP {answer.status}{said}", obstacle="not-otlp")


def _said(content: bytes) -> str:
    text = _printable(_message_of(content) or content)
    return f": {text}" if text else ""


def _printable(text: bytes) -> str:
    shown = "".join(char for char in text[:_LONGEST_SAID].decode("utf-8", "ignore") if char.isprintable()).strip()
    return f"{shown}…" if len(text) > _LONGEST_SAID else shown


def _message_of(content: bytes) -> bytes | None:
    """Return the message (field 2) of a `google.rpc.Status`, with which OTLP has receivers answer; None of others."""
    try:
        return next((value for number, value in fields(content) if number == 2 and isinstance(value, bytes)), None)
    except WireError:
        return None


def _count(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() else None


def _retry_after(text: str | None) -> float | None:
    if not text:
        return None
    try:
        # Seconds, or else a date (RFC 9110, §10.2.3).
        return min(max(0.0, float(text)), _LONGEST_WISH_S)
    except ValueError:
        pass
    from email.utils import parsedate_to_datetime

    try:
        return min(max(0.0, parsedate_to_datetime(text).timestamp() - time.time()), _LONGEST_WISH_S)
    except (TypeError, ValueError, OverflowError):
        return None


_LONGEST_SAID = 500
"""Bytes of an answer that a message shows: a sentence of ours with two paths in it, and the beginning of a page."""

_LONGEST_WISH_S = 3600.0
"""Nobody may silence a job for longer; `nan` and `inf` are numbers to Python, too."""
