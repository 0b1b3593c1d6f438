"""Spans → the bytes of `ExportTraceServiceRequest`s."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any

from otel_ml.wire import attributes as wire
from otel_ml.wire.protobuf import field, integer, key_values, text
from otel_ml_exporters.json_text import json_value
from otel_ml_exporters.records import RunInfo, SpanBatch
from otel_ml_exporters.span_lines import SpanLines

__all__ = ["SCOPE", "encoded_requests", "rows"]

SCOPE = "otel_ml.spans"
"""Scope of the spans of a run; what ranks send is of the scope `otel_ml`."""

_MOST_SPANS = 1000
"""Spans of a request: some 200 KB, far below what receivers take."""

# Numbers of fields here and below are those of `opentelemetry/proto/trace/v1/trace.proto`; 6 is the kind, 15 the
# status.
_INTERNAL = integer(6, 1)
_STATUS = {"unset": b"", "ok": field(15, integer(3, 1)), "error": field(15, integer(3, 2))}


def rows(batches: Iterable[SpanBatch]) -> Iterator[dict[str, Any]]:
    """Yield the spans of batches, as JSON has them."""
    for batch in batches:
        yield from map(json_value, SpanLines.of(batch.spans).lines)


def encoded_requests(run: RunInfo, spans: Iterable[Mapping[str, Any]]) -> Iterator[bytes]:
    """Yield requests that together have all spans, with one resource for each rank of a role in each.

    The resource has no `ml.experiment.id` on purpose: a service of otel_ml behind the endpoint then refuses what
    another one took already.
    """
    waiting = list(spans)
    for at in range(0, len(waiting), _MOST_SPANS):
        # `groupby` puts together only what stands side by side.
        found = sorted(waiting[at : at + _MOST_SPANS], key=_process)
        yield b"".join([field(1, _resource_spans(run, *process, some)) for process, some in groupby(found, _process)])


def _process(span: Mapping[str, Any]) -> tuple[str, int]:
    return span["role"], span["rank"]


def _resource_spans(run: RunInfo, role: str, rank: int, spans: Iterable[Mapping[str, Any]]) -> bytes:
    described = {
        wire.ROLE: role,
        "service.instance.id": f"{run.id}/{rank}",
        wire.RANK: rank,
        "ml.run.id": run.id,
        "ml.run.name": run.name,
        "ml.experiment.name": run.experiment,
    }
    # Of ResourceSpans field 1 is the resource and 2 the spans of a scope; of these 1 is the scope and 2 a span.
    scope = field(1, text(1, SCOPE)) + b"".join([field(2, _span(span)) for span in spans])
    return field(1, key_values(1, described)) + field(2, scope)


def _span(span: Mapping[str, Any]) -> bytes:
    attributes = dict(span["attributes"])
    if span["step"] is not None:
        attributes |= {wire.STEP: span["step"], wire.AXIS: span["axis"]}
    parent = span["parent_id"]
    return b"".join(
        (
            _ids(span),
            field(4, bytes.fromhex(parent)) if parent else b"",
            text(5, span["name"]),
            _INTERNAL,
            _time(7, span["start_ns"]),
            _time(8, span["end_ns"]),
            key_values(9, attributes),
            # Of a link, too, the fields 1 and 2 are the ids.
            *(field(13, _ids(link) + key_values(4, link.get("attributes", {}))) for link in span.get("links") or ()),
            _STATUS[span["status"]],
        )
    )


def _ids(span: Mapping[str, Any]) -> bytes:
    return field(1, bytes.fromhex(span["trace_id"])) + field(2, bytes.fromhex(span["span_id"]))


def _time(number: int, time_ns: int) -> bytes:
    # A fixed64 of protobuf: its tag is the number of the field and the wire type 1.
    return bytes((number << 3 | 1,)) + time_ns.to_bytes(8, "little")
