"""Files of a run: all that this machine sees lies in the run's folder, inline or named; the rest are references."""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

from otel_ml.wire.rendezvous import path_part
from otel_ml_exporters.records import Artifact, Record

__all__ = ["with_files"]

_BESIDE = ".artifact-"
"""Beginning of the name of a folder in which a file is made before it gets its own name."""

_log = logging.getLogger(__name__)


def with_files(records: Sequence[Record], files: Mapping[int, bytes], folder: Path) -> Sequence[Record]:
    """Return `records`, each artifact with its `local` file in `folder/artifacts`, where it can be had."""
    return [_with_file(record, files, folder) if isinstance(record, Artifact) else record for record in records]


def _with_file(record: Artifact, files: Mapping[int, bytes], folder: Path) -> Artifact:
    if record.local is not None:
        return record
    content = files.get(record.seq)
    if content is not None:
        return replace(record, local=_kept(folder, record, _Inline(content)))
    seen = _visible(record)
    if seen is None:
        return record
    try:
        return replace(record, local=_kept(folder, record, _Seen(seen)))
    except OSError as error:
        _log.warning("The file %s stays where it is: %s", seen, error)
        return replace(record, local=seen)


def _kept(folder: Path, record: Artifact, file: _File) -> Path:
    """Put the file under the artifact's name; another version of the same file keeps its own."""
    # Every part becomes one safe path part: no name leaves the run's folder.
    parts = [path_part(part) for part in record.path_in.split("/") if part]
    inside = Path(*parts or ["content"])
    path = folder / "artifacts" / path_part(record.name) / inside
    if path.exists():
        if file.is_same(path):
            return path
        path = folder / "artifacts" / f"{path_part(record.name)}.{record.seq}" / inside
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    for leftover in path.parent.glob(f"{_BESIDE}*"):  # of a service that was killed here
        shutil.rmtree(leftover, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=_BESIDE) as beside:
        file.make(Path(beside) / "file")
        (Path(beside) / "file").replace(path)
    return path


class _File(Protocol):
    """Content that is to be in the run's folder."""

    def is_same(self, path: Path) -> bool:
        """Whether `path` holds it already."""

    def make(self, path: Path) -> None:
        """Put it there."""


@dataclass(frozen=True, slots=True)
class _Inline:
    """It came with the record."""

    content: bytes

    def is_same(self, path: Path) -> bool:
        return path.stat().st_size == len(self.content) and path.read_bytes() == self.content

    def make(self, path: Path) -> None:
        with path.open("wb") as file:
            file.write(self.content)
            file.flush()
            os.fsync(file.fileno())


@dataclass(frozen=True, slots=True)
class _Seen:
    """It is a file of the job: linked, so that it outlives the job's own name for it; from another disk copied."""

    file: Path

    def is_same(self, path: Path) -> bool:
        return path.samefile(self.file) or _sha256(path) == _sha256(self.file)

    def make(self, path: Path) -> None:
        try:
            os.link(self.file, path)
        except OSError:
            shutil.copyfile(self.file, path)


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
