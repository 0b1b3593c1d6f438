"""Files of a run: what workers sent inline is written into the run's folder, what they only named is looked for."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote, urlsplit

from otel_ml.wire.rendezvous import path_part
from otel_ml_exporters.records import Artifact, Record

__all__ = ["with_files"]


def with_files(records: Sequence[Record], files: Mapping[int, bytes], folder: Path) -> Sequence[Record]:
    """Return `records`, each artifact with its `local` file, written to `folder/artifacts` where it came inline."""
    return [_with_file(record, files, folder) if isinstance(record, Artifact) else record for record in records]


def _with_file(record: Artifact, files: Mapping[int, bytes], folder: Path) -> Artifact:
    if record.local is not None:
        return record
    content = files.get(record.seq)
    if content is not None:
        return replace(record, local=_written(folder / "artifacts", record, content))
    return replace(record, local=_visible(record))


def _written(folder: Path, record: Artifact, content: bytes) -> Path:
    """Write `content` under the artifact's name; another version of the same file keeps its own."""
    # Every part becomes one safe path part: no name leaves the run's folder.
    parts = [path_part(part) for part in record.path_in.split("/") if part]
    inside = Path(*parts or ["content"])
    path = folder / path_part(record.name) / inside
    if path.exists() and not _holds(path, content):
        path = folder / f"{path_part(record.name)}.{record.seq}" / inside
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".artifact-")
    with os.fdopen(handle, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    Path(temporary).replace(path)
    return path


def _holds(path: Path, content: bytes) -> bool:
    return path.stat().st_size == len(content) and _sha256(path) == hashlib.sha256(content).hexdigest()


def _visible(record: Artifact) -> Path | None:
    """Return the file the worker named where this machine sees the same one."""
    split = urlsplit(record.uri)
    path = Path(unquote(split.path)) if split.scheme == "file" else Path(record.uri)
    if split.scheme not in {"", "file"} or not path.is_absolute():
        return None
    try:
        if not path.is_file() or path.stat().st_size != record.size:
            return None
        return path if record.sha256 is None or _sha256(path) == record.sha256 else None
    except OSError:
        return None


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
