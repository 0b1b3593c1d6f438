"""Files of a run: all that this machine sees lies in the run's folder, inline or named; the rest are references."""

from __future__ import annotations

import hashlib
import logging
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

from otel_ml.explanation import explained
from otel_ml.wire.rendezvous import kept_folder, path_part
from otel_ml_exporters.records import Artifact, Record

__all__ = ["with_files"]

_BESIDE = ".artifact-"
"""Beginning of the name of a folder in which a file is made before it gets its own name."""

_SHA256 = re.compile(r"[0-9a-f]{64}")

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
    for seen in (_kept_by_worker(record, folder), _visible(record)):
        if seen is None:
            continue
        try:
            return replace(record, local=_kept(folder, record, _Seen(seen, str(record.sha256))))
        except _ChangedError:
            continue
        except OSError as error:
            _log.warning("%s", explained(f"The file {seen} stays where it is: {error}", "artifact-not-kept"))
            return replace(record, local=seen)
    return record


def _kept(folder: Path, record: Artifact, file: _File) -> Path:
    """Put the file under the artifact's name; another version of the same file keeps its own."""
    # Every part becomes one safe path part: no name leaves the run's folder.
    parts = [path_part(part) for part in record.path_in.split("/") if part]
    inside = Path(*parts or ["content"])
    top = folder / "artifacts"
    path = top / path_part(record.name) / inside
    if path.is_file() and _is_within(path, top) and file.is_same(path):
        return path
    if path.exists() or not _is_within(path, top) or not _can_be_folder(path.parent, top):
        path = top / f"{path_part(record.name)}.{record.seq}" / inside
    path.parent.mkdir(mode=0o775, parents=True, exist_ok=True)  # as the umask says, but never for all to write
    for leftover in path.parent.glob(f"{_BESIDE}*"):  # of a service that was killed here
        shutil.rmtree(leftover, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=_BESIDE) as beside:
        file.make(Path(beside) / "file")
        (Path(beside) / "file").replace(path)
    return path


def _is_within(path: Path, top: Path) -> bool:
    """Whether no link on the way leads out of `top`."""
    return path.parent.resolve().is_relative_to(top.resolve())


def _can_be_folder(path: Path, top: Path) -> bool:
    """Whether nothing on the way from `top` is a file: an earlier artifact may have had that name."""
    ways = (path, *path.parents)
    return all(way.is_dir() or not way.exists() for way in ways[: len(path.parts) - len(top.parts)])


class _ChangedError(Exception):
    """A file is not what was announced."""


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
    """It is a file of the job: linked, so that it outlives the job's own name for it; from another disk copied.

    What counts is the content that is kept, hashed after it was made: the name may stand for another file by then.
    """

    file: Path
    sha256: str

    def is_same(self, path: Path) -> bool:
        return _sha256(path) == self.sha256

    def make(self, path: Path) -> None:
        file = self.file.resolve()  # a link to a link would keep the name, not the content
        try:
            os.link(file, path)
        except OSError:
            shutil.copyfile(file, path)
        if not stat.S_ISREG(path.lstat().st_mode) or _sha256(path) != self.sha256:
            raise _ChangedError


def _kept_by_worker(record: Artifact, folder: Path) -> Path | None:
    """Return what a process of this host kept for us: the name it had may be gone."""
    if record.sha256 is None or _SHA256.fullmatch(record.sha256) is None:
        return None
    path = kept_folder(folder) / record.sha256
    return path if path.is_file() else None


def _visible(record: Artifact) -> Path | None:
    """Return the file the worker named where this machine sees one of that size.

    Without its checksum a sender could name any file of ours and have it published: then it is a reference.
    """
    if record.sha256 is None:
        return None
    try:
        split = urlsplit(record.uri)
    except ValueError:
        return None
    path = Path(unquote(split.path)) if split.scheme == "file" else Path(record.uri)
    if split.scheme not in {"", "file"} or not path.is_absolute():
        return None
    try:
        return path if path.is_file() and path.stat().st_size == record.size else None
    except (OSError, ValueError):  # ValueError: a NUL in the name
        return None


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
