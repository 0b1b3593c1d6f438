"""The spans of a run as its own `spans.jsonl` has them: what every backend is held against."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["Link", "Seen", "as_stored", "of_otlp", "rows_of"]


class Link(NamedTuple):
    trace_id: str
    span_id: str
    attributes: Mapping[str, Any]


class Seen(NamedTuple):
    """A span, and the process that it is of."""

    trace_id: str
    span_id: str
    parent_id: str
    name: str
    start_ns: int
    end_ns: int
    service: str
    rank: int
    attributes: dict[str, Any]
    links: list[Link]
    status: str


def rows_of(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "spans.jsonl").read_text().splitlines()]


def as_stored(run: Path) -> dict[str, Seen]:
    """Return id → span; the tags of a step are those that the documentation names."""
    return {
        row["span_id"]: Seen(
            row["trace_id"], row["span_id"], row["parent_id"] or "", row["name"], row["start_ns"], row["end_ns"],
            row["role"], row["rank"], row["attributes"] | {"ml.step": row["step"], "ml.step.axis": row["axis"]},
            sorted(Link(**link) for link in row.get("links", ())), row["status"],
        )
        for row in rows_of(run)
    }  # fmt: skip


STATUS = {0: "unset", 1: "ok", 2: "error"}


def of_otlp(resource: Mapping[str, Any], span: Mapping[str, Any]) -> Seen:
    """Return a span of OTLP's JSON."""
    process = attributes(resource["attributes"])
    links = [
        Link(one["traceId"], one["spanId"], attributes(one.get("attributes", ()))) for one in span.get("links", ())
    ]
    return Seen(
        span["traceId"], span["spanId"], span.get("parentSpanId", ""), span["name"],
        int(span["startTimeUnixNano"]), int(span["endTimeUnixNano"]), process["service.name"], process["ml.rank"],
        attributes(span["attributes"]), sorted(links), STATUS[span.get("status", {}).get("code", 0)],
    )  # fmt: skip


def attributes(pairs: list[dict[str, Any]]) -> dict[str, Any]:
    return {pair["key"]: value_of(pair["value"]) for pair in pairs}


def value_of(any_value: Mapping[str, Any]) -> Any:
    [(kind, value)] = any_value.items()
    if kind == "arrayValue":
        return [value_of(item) for item in value["values"]]
    return int(value) if kind == "intValue" else value
