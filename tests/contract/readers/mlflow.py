"""Reads a run back through MLflow's own client."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mlflow import MlflowClient
from mlflow.store.tracking.dbmodels.models import SqlMetric

from tests.contract.readers import main, number

os.environ["MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR"] = "false"  # a bar for each file hides what a long test says

STEP_FILE = re.compile(r"(?P<name>.+)/(?P<axis>[^/]+)_(?P<step>\d+|none)_(?P<seq>\d+)\.\w+")
IMAGE_FILE = re.compile(r"images/(?P<name>[^+]+)\+step\+(?P<step>\d+)\+timestamp\+\d+\+[^+]+\.png")


def read(run_dir: Path, run_id: str) -> dict[str, object]:
    uri = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{run_dir.resolve().parents[1] / 'mlflow.db'}"
    client = MlflowClient(uri)
    (run,) = (
        run
        for experiment in client.search_experiments()
        for run in client.search_runs([experiment.experiment_id])
        if run.data.tags.get("otel_ml.run_id") == run_id
    )
    tags = run.data.tags
    summary = [key for key, axis in axes_in(tags).items() if axis == "(summary)"]
    scalars, amendments = points(client, run, amended(tags), skip=set(summary))
    files = {path: contents(client, run.info.run_id, path) for path in paths(client, run.info.run_id, "")}
    return {
        "scalars": scalars,
        "amendments": amendments,
        "params": run.data.params,
        "summary": {name.removeprefix("summary/"): number(run.data.metrics[name]) for name in summary},
        "texts": [[name, step, data.decode()] for name, step, data in step_files(files, "texts")],
        "audio": [[name, step, hashlib.sha256(data).hexdigest()] for name, step, data in step_files(files, "audio")],
        "images": list(images(files)),
        "tables": [[name, step, *table(data)] for name, step, data in step_files(files, "tables")],
        "histograms": [[name, step, *histogram(data)] for name, step, data in step_files(files, "histograms")],
        "artifacts": list(artifacts(files)),
        "tags": sorted(value for key, value in tags.items() if not key.startswith(("mlflow.", "otel_ml.", "ml."))),
        "notes": tags.get("mlflow.note.content", ""),
        "status": run.info.status.lower(),
        "names": {
            key: name
            for tag, part in tags.items()
            if tag.startswith(("otel_ml.names.", "otel_ml.param_names."))
            for key, name in json.loads(part).items()
        },
    }


def axes_in(tags: Mapping[str, str]) -> dict[str, str]:
    parts = [json.loads(value) for key, value in tags.items() if key.startswith("otel_ml.axes.")]
    return {key: axis for part in parts for axis, keys in part.items() for key in keys}


def amended(tags: Mapping[str, str]) -> set[tuple[int, int]]:
    return {(step, time) for _, _, step, time in json.loads(tags.get("otel_ml.amended", "[]"))}


def points(
    client: MlflowClient, run: Any, amended: set[tuple[int, int]], skip: set[str]
) -> tuple[list[object], list[object]]:
    scalars: list[object] = []
    amendments: list[object] = []
    axes = axes_in(run.data.tags)
    every = stored(client, run.info.run_id)
    attempts = {
        (axes.get(point.key, "step"), point.step, point.timestamp): int(point.value)
        for point in every
        if is_attempt(point.key)
    }
    for point in every:
        if point.key in skip or is_attempt(point.key):
            continue
        axis = axes.get(point.key, "step")
        name = point.key.removesuffix(f"/over_{axis}")
        value = number(math.nan if point.is_nan else point.value)
        if (point.step, point.timestamp) in amended:
            amendments.append([name, axis, point.step, value])
        else:
            scalars.append([name, axis, point.step, value, attempts.get((axis, point.step, point.timestamp), 0)])
    return scalars, amendments


def is_attempt(key: str) -> bool:
    """Whether the metric says to which attempt the points of its step and time belong; without it, to the first."""
    return re.search(r"(^|/)otel_ml/attempt(/over_\w+)?$", key) is not None


def stored(client: MlflowClient, run_id: str) -> list[Any]:
    """Return all points in the order of their times.

    With MLflow's own tables: its client asks for one metric at a time, which takes a minute for ten thousand.
    """
    with client._tracking_client.store.ManagedSessionMaker() as session:
        found = session.query(SqlMetric).filter(SqlMetric.run_uuid == run_id)
        found = found.order_by(SqlMetric.timestamp, SqlMetric.step).all()
        session.expunge_all()
    return list(found)


def paths(client: MlflowClient, run_id: str, folder: str) -> Iterator[str]:
    for info in client.list_artifacts(run_id, folder):
        if info.is_dir:
            yield from paths(client, run_id, info.path)
        else:
            yield info.path


def contents(client: MlflowClient, run_id: str, path: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        return Path(client.download_artifacts(run_id, path, folder)).read_bytes()


def step_files(files: Mapping[str, bytes], kind: str) -> list[tuple[str, int | None, bytes]]:
    found = []
    for path, data in files.items():
        match = STEP_FILE.fullmatch(path.removeprefix(f"{kind}/"))
        if path.startswith(f"{kind}/") and match:
            step = None if match["step"] == "none" else int(match["step"])
            found.append((int(match["seq"]), match["name"], step, data))
    return [(name, step, data) for _, name, step, data in sorted(found, key=lambda file: file[0])]


def images(files: Mapping[str, bytes]) -> Iterator[list[object]]:
    for path, data in files.items():
        match = IMAGE_FILE.fullmatch(path)
        if match:
            yield [match["name"].replace("~", "/"), int(match["step"]), hashlib.sha256(data).hexdigest()]
    for name, step, data in step_files(files, "images"):
        yield [name, step, hashlib.sha256(data).hexdigest()]


def table(data: bytes) -> tuple[object, object]:
    content = json.loads(data)
    return content["columns"], content["data"]


def histogram(data: bytes) -> tuple[object, object]:
    content = json.loads(data)
    return content["edges"], content["counts"]


def artifacts(files: Mapping[str, bytes]) -> Iterator[list[object]]:
    for path, data in files.items():
        if path.startswith("artifacts/"):
            _, name, inside = path.split("/", 2)
            yield [name, inside, hashlib.sha256(data).hexdigest()]


if __name__ == "__main__":
    main(read)
