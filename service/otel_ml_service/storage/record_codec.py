"""Records ⇄ what the outbox stores: a kind, a JSON text and, for media, the bytes. Exact, and readable without us.

Spans are most of what is stored, and each says the same as the one before but for some numbers: these alone are stored
(ADR 0084). JSON keeps doubles exactly (`repr` round-trips; `NaN`, `Infinity` and `-Infinity` as Python and JavaScript
write them).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any
from zlib import crc32

from otel_ml_exporters.json_text import json_text, json_value
from otel_ml_exporters.records import (
    Artifact,
    Audio,
    HistogramValue,
    Image,
    Params,
    Record,
    RunStatus,
    SpanBatch,
    StepRecord,
    Summary,
    Table,
    Text,
)
from otel_ml_exporters.span_lines import SpanLines, span_of
from otel_ml_service.storage.line_deltas import as_deltas, of_deltas

__all__ = ["Row", "decode", "encode"]

Row = tuple[str, str, "bytes | None"]
"""(kind, JSON text, media bytes)."""

_TYPES: Mapping[str, type[Any]] = {
    "step": StepRecord,
    "params": Params,
    "summary": Summary,
    "text": Text,
    "table": Table,
    "image": Image,
    "audio": Audio,
    "histogram": HistogramValue,
    "artifact": Artifact,
    "spans": SpanBatch,
    "status": RunStatus,
}
_KINDS: Mapping[type[Any], str] = {cls: kind for kind, cls in _TYPES.items()}
_FIELDS: Mapping[type[Any], tuple[str, ...]] = {
    cls: tuple(field.name for field in fields(cls)) for cls in _TYPES.values()
}
_MEDIA: Mapping[str, str] = {"image": "png", "audio": "wav"}

_RESTORE: Mapping[str, Callable[[Any], Any]] = {
    "rows": lambda rows: tuple(tuple(row) for row in rows),
    "columns": tuple,
    "edges": tuple,
    "counts": tuple,
    "aliases": tuple,
    "local": lambda path: None if path is None else Path(path),
    "spans": lambda spans: tuple(map(span_of, spans)),
}
"""Fields whose type JSON does not keep, by name: no two records use one of these names differently."""


def encode(record: Record) -> Row:
    """Return `record` as it is stored.

    Examples:
        >>> encode(Summary(seq=3, time=0.1, values={"accuracy": 0.5}))
        ('summary', '{"seq":3,"time":0.1,"values":{"accuracy":0.5}}', None)
    """
    kind = _KINDS[type(record)]
    if isinstance(record, SpanBatch):
        return kind, _span_text(record.seq, SpanLines.of(record.spans)), None
    content = _content(record)
    media = content.pop(_MEDIA[kind]) if kind in _MEDIA else None
    return kind, json_text(content, default=_plain).decode(), media


def decode(row: Row) -> Record:
    """Return the record that `encode` was given."""
    kind, text, media = row
    if kind == "step":  # most are; all of its numbers are doubles, or fit into 64 bits
        return StepRecord(**json_value(text))
    if kind == "spans" and (found := _spans(text)) is not None:
        return found
    content = json.loads(text)
    for name, restore in _RESTORE.items():
        if name in content:
            content[name] = restore(content[name])
    if kind in _MEDIA:
        content[_MEDIA[kind]] = media
    record: Record = _TYPES[kind](**content)
    return record


def nbytes(record: Record, row: Row) -> int:
    """Return what a record that is stored as `row` takes in memory, about: spans are stored in a tenth of it."""
    _, text, media = row
    spans = record.spans if isinstance(record, SpanBatch) else None
    return (spans.nbytes if isinstance(spans, SpanLines) else len(text)) + len(media or b"")


def _span_text(seq: int, spans: SpanLines) -> str:
    deltas = as_deltas(spans.text)
    if deltas is None:
        return f'{{"seq":{seq},"spans":[\n{spans.written("{", ",")}\n]}}'
    return f'{{"seq":{seq},"count":{len(spans)},"size":{len(spans.text)},"crc":{crc32(deltas.encode())}}}\n{deltas}'


def _spans(text: str) -> SpanBatch | None:
    """Take spans apart without reading them; None where one may be damaged, or a predecessor wrote them in one line."""
    head, _, deltas = text.partition("\n")
    if deltas and head.endswith("}"):
        return _of_deltas(json.loads(head), deltas)
    lines = text.split("\n")
    head, tail = lines[0], lines[-1]
    spans = [line.removesuffix(",") for line in lines[1:-1]]
    if tail != "]}" or not all(span[:1] == "{" and span[-1:] == "}" for span in spans):
        return None
    return SpanBatch(json.loads(head + tail)["seq"], SpanLines(spans))


def _of_deltas(said: Mapping[str, int], deltas: str) -> SpanBatch:
    # One damaged character would be in all lines behind it; the numbers before them are in no checksum.
    if crc32(deltas.encode()) != said["crc"]:
        raise ValueError(f"the spans of record {said['seq']} are damaged")
    lines = of_deltas(deltas, said["size"])
    if lines.count("\n") + 1 != said["count"]:
        raise ValueError(f"how many spans record {said['seq']} has is damaged")
    return SpanBatch(said["seq"], SpanLines.of_text(lines, said["count"]))


def _content(record: object) -> dict[str, Any]:
    return {name: getattr(record, name) for name in _FIELDS[type(record)]}


def _plain(value: object) -> object:
    """Turn what `json` does not know into what it knows."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Path):
        return str(value)
    item = getattr(value, "item", None)  # a numpy scalar
    if callable(item):
        plain: object = item()
        return plain
    raise TypeError(f"{value!r} of type {type(value).__name__} cannot be stored in a record.")
