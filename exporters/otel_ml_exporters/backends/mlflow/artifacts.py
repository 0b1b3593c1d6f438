"""Everything that is not a number → files of an MLflow run, under names that a replay writes again."""

from __future__ import annotations

import hashlib
import io
import json
import logging
import math
import tempfile
import uuid
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from otel_ml.wire.safe_names import as_path, unique_path
from otel_ml_exporters.backends.mlflow.names import fitting
from otel_ml_exporters.records import Artifact, Audio, HistogramValue, Image, JsonValue, Table, Text

if TYPE_CHECKING:
    from mlflow import MlflowClient

__all__ = ["LOGGED_ARTIFACTS", "LOGGED_IMAGES", "Files"]

_log = logging.getLogger(__name__)

LOGGED_IMAGES = "mlflow.loggedImages"
LOGGED_ARTIFACTS = "mlflow.loggedArtifacts"
"""Tags by which MLflow's pages find image grids and tables."""

_MAX_TAG_VALUE = 8000
# An image's file name holds its key, step, time and a UUID; file systems allow 255 bytes.
_MAX_IMAGE_KEY = 120
_THUMBNAIL = 256


class Files:
    """Writes files into one MLflow run.

    Args:
        client: of the tracking store.
        run_id: MLflow's own id of the run.
        tags: the run's tags as they are stored now.
    """

    def __init__(self, client: MlflowClient, run_id: str, tags: Mapping[str, str]) -> None:
        self._client = client
        self._run_id = run_id
        self._tables: list[dict[str, str]] = json.loads(tags.get(LOGGED_ARTIFACTS, "[]"))
        self._images_announced = LOGGED_IMAGES in tags

    def text(self, record: Text) -> None:
        """Store `texts/<name>/<axis>_<step>_<seq>.txt`."""
        self._put(_path("texts", record, "txt"), record.text.encode())

    def audio(self, record: Audio) -> None:
        """Store `audio/<name>/<axis>_<step>_<seq>.wav`."""
        self._put(_path("audio", record, "wav"), record.wav)

    def histogram(self, record: HistogramValue) -> None:
        """Store `histograms/<name>/<axis>_<step>_<seq>.json`."""
        content = {"edges": list(record.edges), "counts": list(record.counts)}
        self._put(_path("histograms", record, "json"), json.dumps(content).encode())

    def table(self, record: Table) -> None:
        """Store what `mlflow.load_table` reads and the page shows.

        `log_table` would read the file back and append to it, which a replay would double.
        """
        path = _path("tables", record, "json")
        rows = [[_cell(cell) for cell in row] for row in record.rows]
        self._put(path, json.dumps({"columns": list(record.columns), "data": rows}).encode())
        entry = {"path": path, "type": "table"}
        if entry not in self._tables:
            self._tables.append(entry)
            # The oldest tables go first; their files stay.
            while len(announced := json.dumps(self._tables)) > _MAX_TAG_VALUE:
                del self._tables[0]
            self._client.set_tag(self._run_id, LOGGED_ARTIFACTS, announced)

    def image(self, record: Image) -> None:
        """Store the PNG and its thumbnail under the names `log_image` gives, with a UUID that a replay repeats."""
        if record.step is None:
            # The names that `log_image` gives have a step in them: without one it is a plain file.
            self._put(_path("images", record, "png"), record.png)
            return
        # `+` parts the fields of the name, and MLflow itself writes `~` for `/`.
        key = _short(as_path(record.name).replace("+", "_").replace("/", "~"))
        same = uuid.uuid5(uuid.NAMESPACE_OID, f"{self._run_id}/{record.seq}")
        stem = f"images/{key}+step+{record.step}+timestamp+{round(record.time * 1000)}+{same}"
        self._put(f"{stem}.png", record.png)
        if (thumbnail := _thumbnail(record.png)) is not None:
            self._put(f"{stem}+compressed.webp", thumbnail)
        if not self._images_announced:
            self._client.set_tag(self._run_id, LOGGED_IMAGES, "True")
            self._images_announced = True

    def artifact(self, record: Artifact) -> None:
        """Store `artifacts/<name>/<path in it>`, or a `.reference.json` where the file is not on this machine."""
        path = f"artifacts/{unique_path(record.name)}/{_inside(record.path_in)}"
        described = {
            "name": record.name,
            "type": record.type,
            "path": record.path_in,
            "uri": record.uri,
            "size": record.size,
            "sha256": record.sha256,
            "step": record.step,
            "aliases": list(record.aliases),
        }
        # A file of the run's folder may have been removed since it was recorded.
        if record.local is not None and record.local.is_file():
            self._put(path, record.local)
        else:
            self._put(f"{path}.reference.json", json.dumps(described).encode())
        tag = fitting(f"otel_ml.artifact/{unique_path(record.name)}")
        self._client.set_tag(self._run_id, tag, json.dumps(described)[:_MAX_TAG_VALUE])

    def _put(self, path: str, content: bytes | Path) -> None:
        where = PurePosixPath(path)
        # `log_artifact` takes a file of this machine only, and calls the artifact as that file is called.
        with tempfile.TemporaryDirectory(prefix="otel-ml-") as folder:
            file = Path(folder, where.name)
            if isinstance(content, Path):
                # Not copied: MLflow uploads what a link leads to, under the name of the link.
                file.symlink_to(content.resolve())
            else:
                file.write_bytes(content)
            self._client.log_artifact(self._run_id, str(file), str(where.parent))


def _path(kind: str, record: Text | Table | Image | Audio | HistogramValue, ending: str) -> str:
    step = "none" if record.step is None else str(record.step)
    axis = as_path(record.axis).replace("/", "~")
    return f"{kind}/{as_path(record.name)}/{axis}_{step}_{record.seq}.{ending}"


def _inside(path_in: str) -> str:
    """Return a relative path without `.` and `..`, of parts that MLflow takes in an address."""
    # The path came from a worker: no part of it leads out of the artifact's folder.
    parts = [part for part in PurePosixPath(path_in).parts if part not in {"/", ".", ".."}]
    return "/".join(map(unique_path, parts)) or "file"


def _short(key: str) -> str:
    data = key.encode()
    if len(data) <= _MAX_IMAGE_KEY:
        return key
    return f"{data[: _MAX_IMAGE_KEY - 9].decode('utf-8', 'ignore')}-{hashlib.sha256(data).hexdigest()[:8]}"


def _cell(value: JsonValue) -> Any:
    """Return a cell that strict JSON readers (browsers) accept."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, (list, tuple, dict)):
        return json.dumps(value, default=str)
    return value


def _thumbnail(png: bytes) -> bytes | None:
    """Return a small copy; None without Pillow, and of what it does not read: the image is stored all the same."""
    out = io.BytesIO()
    try:
        from PIL import Image as Pillow

        with Pillow.open(io.BytesIO(png)) as image:
            small = image.convert("RGBA")
            small.thumbnail((_THUMBNAIL, _THUMBNAIL))
            small.save(out, "WEBP")
    except Exception as error:  # noqa: BLE001 (a torn PNG, one of 200 megapixels, a Pillow without WebP)
        _log.debug("No thumbnail: %s", error)
        return None
    return out.getvalue()
