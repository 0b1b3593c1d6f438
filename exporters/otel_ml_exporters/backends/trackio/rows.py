"""Our records → rows of Trackio's table."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, count
from typing import Any

from otel_ml_exporters.backends.trackio.storage import Row, Storage
from otel_ml_exporters.records import Audio, HistogramValue, Image, Record, StepRecord, Summary, Table, Text

__all__ = ["AMENDMENT", "ATTEMPT", "MAX_BINS", "Media", "media_row", "renamed_in", "step_row", "summary_row"]

ATTEMPT = "otel_ml/attempt"
AMENDMENT = "otel_ml/amendment"

Media = Text | Table | Image | Audio | HistogramValue

_RESERVED = re.compile(r"(?:metric/)*(?:(?:project|run|timestamp|step|time|metrics)\Z|__|summary/)")
"""Names that `trackio.log()` refuses, as its readers write over them; those of final values; what is made of both."""

MAX_BINS = 512
"""`trackio.Histogram` takes no more."""


def metric_key(name: str) -> str:
    """Return a metric's name in a row.

    Examples:
        >>> metric_key("train/loss"), metric_key("step"), metric_key("metric/step"), metric_key("__x")
        ('train/loss', 'metric/step', 'metric/metric/step', 'metric/__x')
    """
    return f"metric/{name}" if _RESERVED.match(name) else name


def renamed_in(record: Record) -> dict[str, str]:
    """Return name → key of what Trackio does not take in a record, as it is.

    Examples:
        >>> renamed_in(StepRecord(7, "trainer", "step", 3, 0, 1.5, {"mfu (%)": 0.25, "step": 2.0}))
        {'step': 'metric/step'}
    """
    if isinstance(record, StepRecord):
        names: Iterable[str] = record.values
    else:
        names = [record.name] if isinstance(record, Media) else ()
    return {name: key for name in names if (key := metric_key(name)) != name}


def step_row(record: StepRecord) -> Row:
    """Return the row of a closed step.

    Examples:
        >>> step_row(StepRecord(7, "trainer", "rollout", 3, 0, 1.5, {"rollout/reward": 0.25})).values
        {'rollout/reward': 0.25, 'otel_ml/rollout': 3}
    """
    values: dict[str, Any] = {metric_key(name): float(value) for name, value in record.values.items()}
    # Trackio has one step for a row; which axis it is of, only the row itself can say.
    if record.axis != "step":
        values[f"otel_ml/{record.axis}"] = record.step
    if record.attempt:
        values[ATTEMPT] = record.attempt
    if record.amendment:
        values[AMENDMENT] = 1
    return Row(record.seq, record.step, record.time, values)


def summary_row(record: Summary) -> Row:
    """Return the row of final values."""
    return Row(record.seq, 0, record.time, {f"summary/{name}": float(value) for name, value in record.values.items()})


def media_row(record: Media, storage: Storage) -> Row:
    """Return the row of a text, table, image, sound or histogram."""
    step = record.step or 0
    values: dict[str, Any] = {metric_key(record.name): _stored(record, storage, step)}
    if record.axis != "step" and record.step is not None:
        values[f"otel_ml/{record.axis}"] = record.step
    return Row(record.seq, step, record.time, values)


def _stored(record: Media, storage: Storage, step: int) -> Mapping[str, Any]:
    """Return what Trackio stores of its own types."""
    import trackio

    match record:
        case Text():
            return {"_type": trackio.Markdown.TYPE, "_value": record.text}
        case Table():
            keys = _keys(record.columns)
            return {"_type": trackio.Table.TYPE, "_value": [dict(zip(keys, row, strict=True)) for row in record.rows]}
        case HistogramValue():
            fitting = record.merged(MAX_BINS)
            return {"_type": trackio.Histogram.TYPE, "bins": list(fitting.edges), "values": list(fitting.counts)}
        case Image():
            kind, file, content = trackio.Image.TYPE, f"{record.seq}.png", record.png
        case Audio():
            kind, file, content = trackio.Audio.TYPE, f"{record.seq}.wav", record.wav
    # Files are named by `seq`, so that a replay writes the same ones.
    return {"_type": kind, "file_path": storage.keep(file, content, step), "caption": record.caption}


def _keys(columns: Sequence[str]) -> list[str]:
    """Return a key for each column: a row of Trackio is a mapping, in which two of one name would be one."""
    keys: dict[str, None] = {}
    for name in columns:
        further = (f"{name}_{number}" for number in count(2))
        keys[next(key for key in chain([name], further) if key not in keys)] = None
    return list(keys)
