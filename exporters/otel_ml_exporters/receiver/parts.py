"""A metrics request, taken apart without decoding it: resources, and the messages of each of their scopes."""

from __future__ import annotations

from typing import NamedTuple

from otel_ml.exceptions import WireError
from otel_ml_exporters.receiver.places import LENGTH, places

__all__ = ["Part", "head_and_rest", "parts"]

_FIRST, _SECOND, _THIRD = (number << 3 | LENGTH for number in (1, 2, 3))
"""Tags: resource, scope_metrics and schema_url of ResourceMetrics; scope, metrics and schema_url of ScopeMetrics."""


class Part(NamedTuple):
    """A ResourceMetrics: its Resource and its ScopeMetrics, each as bytes."""

    resource: bytes
    scopes: list[bytes]


def parts(body: bytes) -> list[Part] | None:
    """Take an ExportMetricsServiceRequest apart; None where that needs a decoder: it is unusual, or no request."""
    found = []
    try:
        for outer in places(body):
            if outer.tag != _FIRST:
                return None
            part = Part(b"", [])
            for inner in places(body, outer.start, outer.end):
                if inner.tag == _SECOND:
                    part.scopes.append(body[inner.start : inner.end])
                elif inner.tag == _FIRST and not part.resource:
                    part = part._replace(resource=body[inner.start : inner.end])
                elif inner.tag != _THIRD:
                    return None
            found.append(part)
    except WireError:
        return None
    return found


def head_and_rest(message: bytes) -> tuple[bytes, bytes] | None:
    """Split a ScopeMetrics into its encoded scope and all fields behind it; None where the scope is not the first."""
    if not message or message[0] != _FIRST:
        return None
    size, start = message[1], 2
    if size > 127:
        if len(message) < 3 or message[2] > 127:
            return None
        size, start = size & 0x7F | message[2] << 7, 3
    return message[start : start + size], message[start + size :]
