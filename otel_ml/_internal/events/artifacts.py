"""Files of the run: content inline up to 4 MiB, else a reference with its size (docs/protocol.md §2.12).

They are opened at the call and read afterwards (`file_reader.py`): what is removed or replaced meanwhile is still what
was meant. It is how training frameworks treat files: of two checkpoints they keep the better, and a file of a temporary
folder is gone when the call returns.

A large file is not read here where the service of this host can do that: it gets a name of its own for the service,
which takes no time whatever its size. Else it is hashed here, so that a service elsewhere knows it when it sees it.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from weakref import WeakSet

from otel_ml.exceptions import OtelMLError
from otel_ml.wire.rendezvous import kept_folder

__all__ = [
    "MAX_INLINE",
    "ArtifactFile",
    "Version",
    "artifact_files",
    "close_artifact",
    "count_files",
    "open_artifact",
    "read_artifact",
    "reference_to_artifact",
]

MAX_INLINE = 4 * 2**20
MAX_FILES = 10_000
"""A folder with more is a data set, not an artifact: its path is what to keep (`log_params`)."""

MAX_OPEN = 128
"""Files of this process that wait open to be read; 1,024 is what a process may usually have of all."""

_PIECE = 4 * 2**20
"""Bytes read at once."""

_OPEN: WeakSet[io.FileIO] = WeakSet()
"""Those: who has read a file lets go of it."""


class ArtifactError(OtelMLError):
    """A file that cannot be read."""

    slug = "missing-artifact"


@dataclass(frozen=True, slots=True)
class Version:
    """Which content of a file is meant: that of this size, written last at this time (ns since the epoch)."""

    size: int
    modified_ns: int

    @staticmethod
    def of(found: os.stat_result) -> Version:
        """Return the version that a file has now."""
        return Version(found.st_size, found.st_mtime_ns)


@dataclass(frozen=True, slots=True)
class ArtifactFile:
    """A file of an artifact.

    Attributes:
        path: where it was at the call.
        path_in: its path inside the artifact.
        opened: the file; None: it is opened when it is read.
        version: at the call; None: it is what is there when it is read.
        stays: whether its name may be there after it was read.
    """

    path: Path
    path_in: str
    opened: io.FileIO | None = None
    version: Version | None = None
    stays: bool = True

    def moved(self, path_in: str, *, is_below: bool) -> ArtifactFile:
        """Return it with another path inside the artifact, or below that; as it is where there is none."""
        if not path_in:
            return self
        return replace(self, path_in=f"{path_in}/{self.path_in}" if is_below else path_in)


def open_artifact(path: Path) -> Sequence[ArtifactFile]:
    """Open the file, or the files of the folder; empty where there are more than may be open: they are found later."""
    free = MAX_OPEN - len(_OPEN)
    if path.is_file():
        files = [(path, path.name)]
    else:
        # One more than may be open tells that there are too many, without a walk through all of a large folder.
        items = list(islice(path.rglob("*"), max(free, 0) + 1))
        files = _below(path, items) if len(items) <= free else []
    return [_opened(file, path_in) for file, path_in in files[: max(free, 0)]]


def close_artifact(files: Sequence[ArtifactFile]) -> None:
    """Close files that nobody will read."""
    for file in files:
        if file.opened is not None:
            file.opened.close()


def artifact_files(path: Path) -> Iterator[ArtifactFile]:
    """Yield the file, or those of the folder, in order.

    Raises:
        ArtifactError: there is no such file, or the folder has too many.
    """
    if path.is_file():
        yield ArtifactFile(path, path.name)
        return
    if not path.is_dir():
        raise ArtifactError(f"log_artifact(): no file or folder {str(path)!r}. Expected one that exists at the call.")
    found = _below(path, path.rglob("*"))
    if len(found) > MAX_FILES:
        raise ArtifactError(f"log_artifact(): {str(path)!r} has {len(found)} files. Expected at most {MAX_FILES}.")
    for file, path_in in found:
        yield ArtifactFile(file, path_in)


def count_files(path: Path) -> int:
    """Return how many files there are, without a look at each: at the end of a process there is no time for that."""
    return 1 if path.is_file() else sum(len(files) for _, _, files in os.walk(path))


def _below(folder: Path, items: Iterator[Path] | Sequence[Path]) -> list[tuple[Path, str]]:
    return [(file, file.relative_to(folder).as_posix()) for file in sorted(items) if file.is_file()]


def _opened(path: Path, path_in: str) -> ArtifactFile:
    with suppress(OSError):  # it is said where it is read
        opened = io.FileIO(path)
        _OPEN.add(opened)
        return ArtifactFile(path, path_in, opened, Version.of(os.fstat(opened.fileno())))
    return ArtifactFile(path, path_in)


def read_artifact(
    file: ArtifactFile, *, run_folder: Path | None = None, go_on: Callable[[], bool] = lambda: True
) -> tuple[bytes, Mapping[str, object]] | None:
    """Return (content or nothing, attributes) of a file, and close it; None where there was no time to read it.

    Args:
        file: of an artifact.
        run_folder: where a large file is kept for the service, whatever becomes of its name; None: it is not.
        go_on: asked after each piece whether there is time for the next one.

    Raises:
        OSError: it cannot be read.
    """
    with file.opened or io.FileIO(file.path) as opened:
        # What was meant at the call; the file may have grown since.
        version = file.version or Version.of(os.fstat(opened.fileno()))
        if version.size > MAX_INLINE and run_folder is not None:
            with suppress(OSError):  # then it is as with a service elsewhere: the name has to stay
                kept = _keep(opened, file, kept_folder(run_folder), version, go_on)
                return None if kept is None else (b"", _attributes(file, version, kept=kept))
        return _read(opened, file, version, go_on)


def reference_to_artifact(file: ArtifactFile) -> tuple[bytes, Mapping[str, object]]:
    """Return the attributes of a file that is no longer read: where it is, and its size.

    Raises:
        OSError: there is no such file.
    """
    version = file.version or Version.of(file.path.stat())
    if file.opened is not None:
        file.opened.close()
    return b"", _attributes(file, version)


def _read(
    opened: io.FileIO, file: ArtifactFile, version: Version, go_on: Callable[[], bool]
) -> tuple[bytes, Mapping[str, object]] | None:
    digest = hashlib.sha256()
    content = bytearray()
    size = 0
    # `_copy()` may have failed in the middle.
    opened.seek(0)
    while piece := opened.read(_PIECE):
        digest.update(piece)
        size += len(piece)
        # Of a larger file only the digest is needed, so its content is not kept in memory. A small one may have grown
        # since the call, to any size.
        if max(version.size, size) <= MAX_INLINE:
            content += piece
        else:
            content.clear()
        if not go_on():
            return None
    return bytes(content), _attributes(file, Version(size, version.modified_ns), sha256=digest.hexdigest())


def _attributes(file: ArtifactFile, version: Version, *, sha256: str = "", kept: str = "") -> Mapping[str, object]:
    known = {"ml.artifact.sha256": sha256} if sha256 else {}
    # The time tells the service whether the file was written into after the call.
    handed_over = {"ml.artifact.kept": kept, "ml.artifact.modified": version.modified_ns} if kept else {}
    return {
        "ml.artifact.path_in": file.path_in,
        "ml.artifact.uri": file.path.absolute().as_uri(),
        "ml.artifact.size": version.size,
        **known,
        **handed_over,
    }


def _keep(
    opened: io.FileIO, file: ArtifactFile, folder: Path, version: Version, go_on: Callable[[], bool]
) -> str | None:
    """Give an open file a name of our own, and return that; None where there was no time.

    It is a link; of a file of another disk a symbolic one, for the service to copy, or a copy where it has no name any
    more, or will soon have none.
    """
    # Each by itself: `mkdir(parents=True)` makes what is above with the usual mode, readable for others.
    for made in (folder.parent, folder):
        made.mkdir(mode=0o700, parents=True, exist_ok=True)
    name = os.urandom(16).hex()
    try:
        _link(opened, folder / name)
    except OSError:
        if file.stays and _is_still(opened, file.path):
            (folder / name).symlink_to(file.path.absolute())
        elif not _copy(opened, folder / name, version, go_on):
            return None
    return name


def _link(opened: io.FileIO, fresh: Path) -> None:
    """Link the file that is open, which need not be the one that has its name by now."""
    descriptors = os.open("/proc/self/fd", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        # Without a folder's descriptor Python calls link(), which links the link.
        os.link(str(opened.fileno()), fresh, src_dir_fd=descriptors, follow_symlinks=True)
    finally:
        os.close(descriptors)


def _is_still(opened: io.FileIO, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(opened.fileno()), path.stat())
    except OSError:
        return False


def _copy(opened: io.FileIO, fresh: Path, version: Version, go_on: Callable[[], bool]) -> bool:
    part = fresh.with_suffix(".part")
    try:
        with open(part, "xb", opener=lambda name, flags: os.open(name, flags, 0o600)) as copy:
            while piece := opened.read(_PIECE):
                copy.write(piece)
                if not go_on():
                    return False
        # Before it has its name: the service asks whether what it finds was written at that time.
        os.utime(part, ns=(version.modified_ns, version.modified_ns))
        part.replace(fresh)
    finally:
        part.unlink(missing_ok=True)
    return True
