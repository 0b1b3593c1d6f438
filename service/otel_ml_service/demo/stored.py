"""Reads what each backend holds of a run, with the backend's own library."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from otel_ml.exceptions import OtelMLError
from otel_ml.sqlite_address import sqlite_uri
from otel_ml.wire.attributes import DEFAULT_AXIS
from otel_ml_exporters.records import StepRecord
from otel_ml_service.stored_runs.follow_jsonl import Follower
from otel_ml_service.stored_runs.run_folders import RunFolder
from otel_ml_service.stored_runs.run_history import History, SeriesName

__all__ = ["READERS", "NotStoredError", "Point", "Stored"]

Point = tuple[SeriesName, int]
"""A series and a step of it."""


class NotStoredError(OtelMLError):
    """A backend does not hold the run at all."""

    slug = "demo-failed"


@dataclass
class Stored:
    """The last value of every point, and how many values were stored for them."""

    last: dict[Point, float] = field(default_factory=dict)
    values: int = 0

    def add(self, series: SeriesName, step: int, value: float) -> None:
        """Take one value, in the order in which the backend counts them."""
        self.last[series, step] = value
        self.values += 1

    @property
    def extra(self) -> int:
        """Values beyond one a point."""
        return self.values - len(self.last)


def read_jsonl(run: RunFolder, reference: History) -> Stored:
    """Read `metrics.jsonl`."""
    stored = Stored()
    for record in Follower(run.jsonl).new_records():
        if isinstance(record, StepRecord):
            for name, value in record.values.items():
                stored.add(SeriesName(record.axis, name), record.step, value)
    return stored


def read_tensorboard(run: RunFolder, reference: History) -> Stored:
    """Read the event files with TensorBoard's own loader; corrections are in a sub-run and come last."""
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
    from tensorboard.util import tensor_util

    # A name is on one axis with steps, so it alone says which.
    with_steps = {key.name: key for key in reference.series if key.axis != "time"}
    stored = Stored()
    for sub_run in ("", "time", "amended"):
        for path in sorted((run.path / "tensorboard" / sub_run).glob("events.out.tfevents.*")):
            for event in EventFileLoader(str(path)).Load():
                for value in event.summary.value:
                    key = SeriesName("time", value.tag) if sub_run == "time" else with_steps.get(value.tag)
                    if key in reference.series and value.metadata.plugin_data.plugin_name in {"scalars", ""}:
                        stored.add(key, event.step, float(tensor_util.make_ndarray(value.tensor)))
    return stored


def read_mlflow(run: RunFolder, reference: History) -> Stored:
    """Read every metric's history through MLflow's client; of two points at a step the later one is the last."""
    import mlflow

    database = run.path.parent.parent / "mlflow.db"
    client = mlflow.MlflowClient(sqlite_uri(database))
    experiments = [experiment.experiment_id for experiment in client.search_experiments()]
    found = client.search_runs(experiments, f"tags.`otel_ml.run_id` = '{run.id}'")
    if len(found) != 1:
        raise NotStoredError(f"{str(database)!r} holds {len(found)} runs of {run.id!r}; expected one.")
    stored = Stored()
    axis_of = _mlflow_axes(found[0].data.tags)
    for key in found[0].data.metrics:
        axis = axis_of.get(key, DEFAULT_AXIS)
        for point in sorted(client.get_metric_history(found[0].info.run_id, key), key=lambda point: point.timestamp):
            series = SeriesName(axis, key.removesuffix(f"/over_{axis}"))
            if series in reference.series:
                stored.add(series, point.step, point.value)
    return stored


def _mlflow_axes(tags: Mapping[str, str]) -> Mapping[str, str]:
    """Return key → axis: MLflow knows no axes, so the exporter keeps in tags which keys are not on `step`."""
    listed = (json.loads(value) for tag, value in tags.items() if tag.startswith("otel_ml.axes."))
    return {key: axis for axes in listed for axis, keys in axes.items() for key in keys}


def read_wandb(run: RunFolder, reference: History) -> Stored:
    """Read the offline log: LevelDB framing around W&B's own protobuf records."""
    folder = run.path.parent.parent / "wandb"
    logs = sorted(folder.glob(f"offline-run-*-{run.id}/run-*.wandb"))
    if not logs:
        raise NotStoredError(f"{str(folder)!r} holds no offline run {run.id!r}.")
    axes = sorted({key.axis for key in reference.series}, key=lambda axis: axis != "time")
    stored = Stored()
    for row in chain.from_iterable(_wandb_rows(log.read_bytes()) for log in logs):
        # A row of the axis `time` also says which training step was current then, under that step's own key.
        axis = next((axis for axis in axes if f"otel_ml/{axis}" in row), None)
        for name, value in row.items():
            if axis is not None and SeriesName(axis, name) in reference.series:
                stored.add(SeriesName(axis, name), int(row[f"otel_ml/{axis}"]), float(value))
    return stored


def _wandb_rows(content: bytes) -> Iterator[Mapping[str, Any]]:
    from wandb.proto.wandb_internal_pb2 import Record

    for payload in _leveldb_records(content):
        record = Record()
        record.ParseFromString(payload)
        if record.WhichOneof("record_type") == "history":
            yield {"/".join(item.nested_key) or item.key: json.loads(item.value_json) for item in record.history.item}


_BLOCK = 32 * 1024
_HEADER = struct.Struct("<IHB")
# `:W&B`, two bytes of a magic number, one of a version. Blocks are counted from the beginning of the file, too.
_FILE_HEADER = 7
# A record in one piece, and the last piece of one; 2 and 3 are the first and those between.
_FULL, _LAST = 1, 4


def _leveldb_records(content: bytes) -> Iterable[bytes]:
    """Yield the records of a LevelDB log: blocks of 32 KiB, pieces of (CRC, length, type, payload)."""
    position, parts = _FILE_HEADER, []
    while position + _HEADER.size <= len(content):
        left = _BLOCK - position % _BLOCK
        if left < _HEADER.size:
            # A block whose rest is shorter than a header ends with zeros.
            position += left
            continue
        _, length, kind = _HEADER.unpack_from(content, position)
        position += _HEADER.size
        parts.append(content[position : position + length])
        position += length
        if kind in {_FULL, _LAST}:
            yield b"".join(parts)
            parts = []


READERS: Mapping[str, Callable[[RunFolder, History], Stored]] = {
    "jsonl": read_jsonl,
    "tensorboard": read_tensorboard,
    "mlflow": read_mlflow,
    "wandb": read_wandb,
}
