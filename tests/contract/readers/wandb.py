"""Reads an offline run back from W&B's transaction logs, with the messages of W&B's own protocol."""

from __future__ import annotations

import hashlib
import html
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from wandb.proto import wandb_internal_pb2

from otel_ml_exporters.backends.wandb.transaction_log import records
from tests.contract.readers import main, number

AXIS = "otel_ml/"
WANDB_KEYS = {"_step", "_timestamp", "_runtime"}
OWN = {"otel_ml/attempt", "otel_ml/amendment"}
STATUS = {0: "finished", 137: "killed"}


def read(run_dir: Path, run_id: str) -> dict[str, object]:
    answer = Answer()
    for path in sorted((run_dir.resolve().parents[1] / "wandb").glob(f"offline-run-*/run-{run_id}.wandb")):
        answer.status, answer.goes_on = "running", False
        answer.files = path.parent / "files"
        for _, content in records(path):
            answer.add(wandb_internal_pb2.Record.FromString(content))
    return answer.as_json()


class Answer:
    def __init__(self) -> None:
        self.files = Path()
        self.status, self.goes_on = "running", False
        self.lists: dict[str, list[object]] = {
            key: []
            for key in ("scalars", "amendments", "texts", "tables", "images", "audio", "histograms", "artifacts")
        }
        self.config: dict[str, object] = {}
        self.summary: dict[str, object] = {}
        self.tags: list[str] = []
        self.notes = ""
        self.drawn: set[str] = set()
        self.axes: set[str] = set()
        self.over: dict[str, str] = {}
        """Metric → what a script's `define_metric(step_metric=…)` draws it over."""

    def as_json(self) -> dict[str, object]:
        own = {"_wandb", "otel_ml/names"}
        params = dict(leaves("", {key: value for key, value in self.config.items() if key not in own}))
        names = self.config.get("otel_ml/names", {})
        said = {"tags": self.tags, "notes": self.notes, "status": self.status, "names": names}
        return {**self.lists, "params": params, "summary": self.summary, **said}

    def add(self, record: Any) -> None:
        kind = record.WhichOneof("record_type")
        handler = getattr(self, f"on_{kind}", None)
        if handler is not None:
            handler(getattr(record, kind))

    def on_run(self, run: Any) -> None:
        self.tags, self.notes = sorted(run.tags), run.notes

    def on_config(self, config: Any) -> None:
        for item in config.update:
            self.config[item.key] = json.loads(item.value_json)

    def on_metric(self, metric: Any) -> None:
        if metric.step_metric:
            self.drawn.add(metric.name)
            self.axes.add(metric.step_metric)
            if not metric.step_metric.startswith(AXIS):
                self.over[metric.name] = metric.step_metric

    def on_summary(self, summary: Any) -> None:
        for item in summary.update:
            if item.key and item.key not in WANDB_KEYS | {"_wandb"}:
                self.summary[item.key] = given_number(json.loads(item.value_json))

    def on_exit(self, exit_record: Any) -> None:
        if not self.goes_on:
            self.status = STATUS.get(exit_record.exit_code, "failed")

    def on_preempting(self, _: Any) -> None:
        self.goes_on = True  # in the next file

    def on_artifact(self, artifact: Any) -> None:
        if artifact.type != "run_table":  # that one is made by W&B for a table
            for file in artifact.manifest.contents:
                content = Path(file.local_path).read_bytes()
                self.lists["artifacts"].append([artifact.name, file.path, hashlib.sha256(content).hexdigest()])

    def on_history(self, history: Any) -> None:
        row: dict[str, Any] = {}
        for item in history.item:
            place = row
            *outer, key = item.nested_key or [item.key]
            for part in outer:
                place = place.setdefault(part, {})
            place[key] = json.loads(item.value_json)
        known = {key for key in row if key.startswith(AXIS) and not isinstance(row[key], dict)} - OWN  # no media
        # A row of the axis `time` says the step of then as well, which is a value there and the place elsewhere.
        places = known & {f"{AXIS}time"} or known - self.drawn or known & self.axes
        axis, step = next(((key.removeprefix(AXIS), row[key]) for key in places), ("step", None))
        # What a row of another axis is drawn over is its place, too; that metric's own values are in rows of steps.
        beside = {self.over[name] for name in row if name in self.over} if axis != "step" else set()
        for name in row.keys() - WANDB_KEYS - OWN - places - beside:
            self.on_value(name, axis, step, row[name], row)

    def on_value(self, name: str, axis: str, step: int | None, value: Any, row: Mapping[str, Any]) -> None:
        if isinstance(value, dict):
            kind, content = self.media(value)
            self.lists[kind].append([name, step, *content])
        elif "otel_ml/amendment" in row:
            self.lists["amendments"].append([name, axis, step, number(value)])
        else:
            self.lists["scalars"].append([name, axis, step, number(value), row["otel_ml/attempt"]])

    def media(self, value: Mapping[str, Any]) -> tuple[str, list[object]]:
        if value["_type"] == "histogram":
            return "histograms", [value["bins"], value["values"]]
        data = (self.files / value["path"]).read_bytes()
        match value["_type"]:
            case "html-file":
                return "texts", [html.unescape(data.decode().removeprefix("<pre>").removesuffix("</pre>"))]
            case "table-file":
                table = json.loads(data)
                return "tables", [table["columns"], table["data"]]
            case "image-file":
                return "images", [hashlib.sha256(data).hexdigest()]
            case "audio-file":
                return "audio", [hashlib.sha256(data).hexdigest()]
        raise AssertionError(value)


def given_number(value: object) -> object:
    return number(float(value)) if isinstance(value, (int, float, str)) else value


def leaves(prefix: str, values: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    for name, value in values.items():
        key = f"{prefix}.{name}" if prefix else name
        if isinstance(value, dict):
            yield from leaves(key, value)
        else:
            yield key, value


if __name__ == "__main__":
    main(read)
