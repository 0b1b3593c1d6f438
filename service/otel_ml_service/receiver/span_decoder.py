"""OTLP traces → spans."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from otel_ml.wire import attributes as wire
from otel_ml_exporters.records import JsonValue, Span, SpanLink
from otel_ml_service.aggregation.observation import Spans, Writer
from otel_ml_service.receiver.attribute_values import attributes
from otel_ml_service.receiver.partial_success import Rejections
from otel_ml_service.receiver.point_coordinates import coordinates

__all__ = ["decode_spans", "links_of"]

_STATUS: Mapping[int, Literal["unset", "ok", "error"]] = {1: "ok", 2: "error"}


def decode_spans(writer: Writer, scope_spans: Any, rejections: Rejections) -> list[Spans]:
    """Return the spans of one ScopeSpans (none or one `Spans`); unusable ones are added to `rejections`."""
    scope = attributes(scope_spans.scope.attributes)
    found = []
    for message in scope_spans.spans:
        try:
            found.append(_span(writer, message, scope))
        except ValueError as error:
            rejections.add(str(error))
    return [Spans(writer, tuple(found))] if found else []


def _span(writer: Writer, message: Any, scope: Mapping[str, JsonValue]) -> Span:
    if len(message.trace_id) != 16 or len(message.span_id) != 8:
        raise ValueError(f"the span {message.name!r} has no valid ids; expected 16 and 8 bytes.")
    given = attributes(message.attributes)
    # What a span says itself wins over its scope.
    where = coordinates({**scope, **given})
    return Span(
        trace_id=message.trace_id.hex(),
        span_id=message.span_id.hex(),
        parent_id=message.parent_span_id.hex() or None,
        name=message.name,
        start_ns=message.start_time_unix_nano,
        end_ns=message.end_time_unix_nano,
        role=writer.role,
        rank=writer.rank,
        axis=None if where.step is None else where.axis,
        step=where.step,
        attributes={key: value for key, value in given.items() if key not in {wire.STEP, wire.AXIS}},
        status=_STATUS.get(message.status.code, "unset"),
        links=links_of(message),
    )


def links_of(message: Any) -> tuple[SpanLink, ...]:
    """Return the links of an OTLP span; one without valid ids leads nowhere and is left out."""
    return tuple(
        SpanLink(link.trace_id.hex(), link.span_id.hex(), attributes(link.attributes))
        for link in message.links
        if len(link.trace_id) == 16 and len(link.span_id) == 8
    )
