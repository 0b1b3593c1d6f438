"""`mlflow.artifacts`: what a run of this process has recorded is read here, all else by MLflow's own package."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path, PurePosixPath
from typing import Any

from otel_ml.compat.mlflow import client
from otel_ml.compat.mlflow.active_run import ActiveRun
from otel_ml.compat.mlflow.open_runs import STATE
from otel_ml.compat.mlflow.runs import of_mlflow
from otel_ml.compat.tracking.recorded_files import copied

__all__ = ["download_artifacts", "list_artifacts", "load_dict", "load_image", "load_text"]

_RUNS = "runs:/"


def load_text(artifact_uri: str) -> str:
    """Return a text that was logged, or what a file has.

    Args:
        artifact_uri: `runs:/<run_id>/<path>`, or what `mlflow.get_artifact_uri(path)` returns.

    Raises:
        OSError: as MLflow's: there is none of that path.
    """
    found = _own(artifact_uri)
    if found is None:
        return str(_of_mlflow("load_text")(artifact_uri))
    run, path = found
    # What log_text() and log_dict() record is a text of the run, and no file of its folder.
    text = run.texts.get(path)
    return Path(client.download_artifacts(run.info.run_id, path)).read_text("utf-8") if text is None else text


def load_dict(artifact_uri: str) -> Any:
    """Return a dictionary that was logged, or what a JSON or YAML file has; raises as `load_text()`."""
    if _own(artifact_uri) is None:
        return _of_mlflow("load_dict")(artifact_uri)
    text = load_text(artifact_uri)
    if PurePosixPath(artifact_uri).suffix in {".yaml", ".yml"}:
        import yaml

        return yaml.safe_load(text)
    return json.loads(text)


def load_image(artifact_uri: str) -> Any:
    """Return the picture of a file, of the package Pillow; raises as `load_text()`."""
    found = _own(artifact_uri)
    if found is None:
        return _of_mlflow("load_image")(artifact_uri)
    from PIL import Image

    run, path = found
    return Image.open(client.download_artifacts(run.info.run_id, path))


def download_artifacts(
    artifact_uri: str | None = None,
    run_id: str | None = None,
    artifact_path: str | None = None,
    dst_path: str | None = None,
    tracking_uri: str | None = None,
    registry_uri: str | None = None,
) -> str:
    """Copy a file, a folder or a text to a folder, by default a new one, and return where it is.

    It raises as `load_text()`.
    """
    found = _own(artifact_uri) if run_id is None else _of_run(run_id, artifact_path)
    if found is None:
        asked = {"tracking_uri": tracking_uri, "registry_uri": registry_uri, "dst_path": dst_path}
        return str(_of_mlflow("download_artifacts")(artifact_uri, run_id, artifact_path, **asked))
    run, path = found
    text = run.texts.get(path)
    if text is None:
        return client.download_artifacts(run.info.run_id, path, dst_path)
    with tempfile.TemporaryDirectory(prefix="otel-ml-text-") as folder:
        written = Path(folder) / "text"
        written.write_text(text, encoding="utf-8")
        # As a file that was recorded: copied() refuses a path that leads out of the folder.
        return str(copied(written, dst_path or tempfile.mkdtemp(prefix="otel-ml-artifacts-"), path))


def list_artifacts(
    artifact_uri: str | None = None,
    run_id: str | None = None,
    artifact_path: str | None = None,
    tracking_uri: str | None = None,
) -> Any:
    """Return the files and folders of a folder of artifacts; not of texts, images and tables."""
    found = _own(artifact_uri) if run_id is None else _of_run(run_id, artifact_path)
    if found is None:
        return _of_mlflow("list_artifacts")(artifact_uri, run_id, artifact_path, tracking_uri)
    run, path = found
    return client.list_artifacts(run.info.run_id, path or None)


def __getattr__(name: str) -> Any:
    """Return what only MLflow's own module has."""
    return _of_mlflow(name)


def _of_mlflow(name: str) -> Any:
    return getattr(of_mlflow("artifacts", is_of_the_server=True), name)


def _of_run(run_id: str, path: str | None) -> tuple[ActiveRun, str] | None:
    run = STATE.known(run_id)
    return None if run is None else (run, (path or "").strip("/"))


def _own(artifact_uri: str | None) -> tuple[ActiveRun, str] | None:
    """Return the run of this process that an address is of, and the path in it; None of any other address."""
    if artifact_uri is None:
        return None
    if artifact_uri.startswith(_RUNS):
        parts = artifact_uri.removeprefix(_RUNS).strip("/").split("/")
        # The id of a nested run has that of its parent before it: the longest id is meant.
        ends = range(len(parts), 0, -1)
        found = (_of_run("/".join(parts[:end]), "/".join(parts[end:])) for end in ends)
        return next((one for one in found if one is not None), None)
    # The innermost first: a nested run has the folder of its parent, and what is logged now is in it.
    for run in (*reversed(STATE.stack), STATE.last):
        folder = f"{run.info.artifact_uri}/" if run is not None and run.info.artifact_uri else ""
        if run is not None and folder and artifact_uri.startswith(folder):
            return run, artifact_uri.removeprefix(folder).strip("/")
    return None
