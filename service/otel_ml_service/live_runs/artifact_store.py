"""Files of a run: all that this machine sees lies in the run's folder, inline or named; the rest are references."""

from __future__ import annotations

import hashlib
import logging
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, Protocol
from urllib.parse import unquote, urlsplit

from otel_ml.explanation import explained
from otel_ml.wire.rendezvous import kept_folder, path_part
from otel_ml_exporters.records import Artifact, Record
from otel_ml_service.aggregation.output import NamedFile

__all__ = ["StoppedError", "found_file", "with_content"]

_LONGEST_PATH = 1000
"""Characters of a path inside an artifact: with the run's folder before it, it has to be a path on this system."""

_BESIDE = ".artifact-"
"""Beginning of the name of a folder in which a file is made before it gets its own name."""

_KEPT = re.compile(r"[0-9a-f]{32}")
"""Names of files that a worker keeps for us."""

_PIECE = 4 * 2**20
"""Bytes read at once."""

_log = logging.getLogger(__name__)

GoOn = Callable[[], bool]
"""Asked after each piece of a file whether there is time for the next one."""


class StoppedError(Exception):
    """The service stops: the file is looked for again by the next one."""


def with_content(records: Sequence[Record], files: Mapping[int, bytes], folder: Path) -> Sequence[Record]:
    """Return `records`, each artifact that came with its content with its `local` file in `folder/artifacts`."""
    return [
        replace(record, local=_kept(folder, record, _Inline(files[record.seq])))
        if isinstance(record, Artifact) and record.seq in files
        else record
        for record in records
    ]


def found_file(named: NamedFile, folder: Path, go_on: GoOn = lambda: True) -> Artifact:
    """Return an artifact with its `local` file in `folder/artifacts`, where this machine sees it; it is hashed here.

    Args:
        named: what a worker announced.
        folder: of the run.
        go_on: whether there is time for the next piece.

    Raises:
        StoppedError: there is none.
    """
    record = named.artifact
    seen = _kept_by_worker(named, folder, go_on) if named.kept else _visible(record, go_on)
    if seen is None:
        return record
    try:
        return replace(record, local=_kept(folder, record, seen), sha256=seen.sha256)
    except _ChangedError:
        return record
    except OSError as error:
        # The run's folder may be full, or not to be written to: exporters then read the file where it is.
        _log.warning("%s", explained(f"The file {seen.file} stays where it is: {error}", "artifact-not-kept"))
        return replace(record, local=seen.file, sha256=seen.sha256)


def _kept(folder: Path, record: Artifact, file: _File) -> Path:
    """Put the file under the artifact's name; another version of the same file keeps its own."""
    # Every part becomes one safe path part: no name leaves the run's folder.
    parts = [path_part(part) for part in record.path_in.split("/") if part]
    inside = Path(*parts or ["content"])
    if len(str(inside)) > _LONGEST_PATH:  # safe parts are longer than what was written
        inside = Path(path_part(record.path_in))
    top = folder / "artifacts"
    path = top / path_part(record.name) / inside
    # The same was logged before, or a service was killed between giving it its name and its commit.
    if path.is_file() and _is_within(path, top) and file.is_same(path):
        return path
    # Something else has that place. `seq` is unlike that of any other artifact of the run.
    if path.exists() or not _is_within(path, top) or not _can_be_folder(path.parent, top):
        path = top / f"{path_part(record.name)}.{record.seq}" / inside
    path.parent.mkdir(mode=0o775, parents=True, exist_ok=True)  # as the umask says, but never for all to write
    for leftover in path.parent.glob(f"{_BESIDE}*"):  # of a service that was killed here
        shutil.rmtree(leftover, ignore_errors=True)
    # In a folder beside it, so on the same disk: `replace` is then one step, and nobody sees half a file.
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=_BESIDE) as beside:
        file.make(Path(beside) / "file")
        (Path(beside) / "file").replace(path)
    return path


def _is_within(path: Path, top: Path) -> bool:
    """Whether no link on the way leads out of `top`."""
    return path.parent.resolve().is_relative_to(top.resolve())


def _can_be_folder(path: Path, top: Path) -> bool:
    """Whether nothing on the way from `top` is a file: an earlier artifact may have had that name."""
    # From `path` upwards, as many as there are below `top`.
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


class _Version(NamedTuple):
    """Which content a file has: nothing wrote to it as long as this stays the same."""

    inode: int
    size: int
    modified_ns: int

    @classmethod
    def of(cls, path: Path) -> _Version:
        found = path.stat()
        return cls(found.st_ino, found.st_size, found.st_mtime_ns)


@dataclass(frozen=True, slots=True)
class _Seen:
    """It is a file of the job: linked, so that it outlives the job's own name for it; from another disk copied.

    What counts is the content that is kept, hashed after it was made: the name may stand for another file by then.

    Attributes:
        hashed: the content that `sha256` is of, where it was hashed here.
    """

    file: Path
    sha256: str
    go_on: GoOn
    hashed: _Version | None = None

    def is_same(self, path: Path) -> bool:
        return path.stat().st_size == self.file.stat().st_size and self._has_hash(path)

    def make(self, path: Path) -> None:
        file = self.file.resolve()  # a link to a link would keep the name, not the content
        try:
            os.link(file, path)
        except OSError:
            # Another disk, a file system without links, or a file of another user, which Linux may not let us link
            # (fs.protected_hardlinks).
            _copy(file, path, self.go_on)
        if not stat.S_ISREG(path.lstat().st_mode) or not self._has_hash(path):
            raise _ChangedError

    def _has_hash(self, path: Path) -> bool:
        # A link is the inode that was hashed: it spares a second pass over the content.
        if self.hashed is not None and _Version.of(path) == self.hashed:
            return True
        return _sha256(path, self.go_on) == self.sha256


def _kept_by_worker(named: NamedFile, folder: Path, go_on: GoOn) -> _Seen | None:
    """Return what a process of this host kept for us, and hash it: the name it had may be gone."""
    path = kept_folder(folder) / named.kept
    # The name was sent to us: it must not lead out of the folder.
    if _KEPT.fullmatch(named.kept) is None or not path.is_file():
        return None
    # Hashed first: what is written meanwhile changes the version, which is then not the announced one.
    sha256, version = _sha256(path, go_on), _Version.of(path)
    if (version.size, version.modified_ns) != (named.artifact.size, named.modified_ns):
        why = f"The file {named.artifact.uri} was written to after it was logged: the run has where it is."
        _log.warning("%s", explained(why, "artifact-not-kept"))
        return None
    return _Seen(path, sha256, go_on, version)


def _visible(record: Artifact, go_on: GoOn) -> _Seen | None:
    """Return the file the worker named where this machine sees one of that size, and the hash it has to have.

    Without its checksum a sender could name any file of ours and have it published: then it is a reference.
    """
    if record.sha256 is None:
        return None
    try:
        split = urlsplit(record.uri)
    except ValueError:
        return None
    # In a plain path `%41` and `#` are characters of the name.
    path = Path(unquote(split.path)) if split.scheme == "file" else Path(record.uri)
    if split.scheme not in {"", "file"} or not path.is_absolute():
        return None
    try:
        is_it = path.is_file() and path.stat().st_size == record.size
        return _Seen(path, record.sha256, go_on) if is_it else None
    except (OSError, ValueError):  # ValueError: a NUL in the name
        return None


def _sha256(path: Path, go_on: GoOn) -> str:
    digest = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        while block := file.read(_PIECE):
            digest.update(block)
            if not go_on():
                raise StoppedError
    return digest.hexdigest()


def _copy(file: Path, path: Path, go_on: GoOn) -> None:
    with file.open("rb", buffering=0) as source, path.open("wb") as copy:
        while block := source.read(_PIECE):
            copy.write(block)
            if not go_on():
                raise StoppedError
