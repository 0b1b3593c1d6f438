"""Files of the run: content inline up to 4 MiB, else a reference with size and SHA-256 (CONTRACT §4).

They are opened at the call and read afterwards, by the background thread: what is removed or replaced meanwhile is
still what was meant. It is how training frameworks treat files: of two checkpoints they keep the better, and a file
of a temporary folder is gone when the call returns.
"""

from __future__ import annotations

import hashlib
import io
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from weakref import WeakSet

from otel_ml.exceptions import OtelMLError
from otel_ml.wire.rendezvous import kept_folder

__all__ = ["MAX_INLINE", "ArtifactFile", "artifact_files", "open_artifact", "read_artifact"]

MAX_INLINE = 4 * 2**20
MAX_FILES = 10_000
"""A folder with more is a data set, not an artifact: its path is what to keep (`log_params`)."""

MAX_OPEN = 128
"""Files of this process that wait open for the background thread; 1,024 is what a process may usually have of all."""

_OPEN: WeakSet[io.FileIO] = WeakSet()


class ArtifactError(OtelMLError):
    """A file that cannot be read."""

    slug = "missing-artifact"


@dataclass(frozen=True, slots=True)
class ArtifactFile:
    """A file of an artifact.

    Attributes:
        path: where it was at the call.
        path_in: its path inside the artifact.
        opened: the file; None: it is opened when it is read.
    """

    path: Path
    path_in: str
    opened: io.FileIO | None = None


def open_artifact(path: Path) -> Sequence[ArtifactFile]:
    """Open the file, or the files of the folder; empty where there are more than may be open: they are found later."""
    free = MAX_OPEN - len(_OPEN)
    if path.is_file():
        files = [(path, path.name)]
    else:
        items = list(islice(path.rglob("*"), max(free, 0) + 1))
        files = _below(path, items) if len(items) <= free else []
    return [ArtifactFile(file, path_in, _opened(file)) for file, path_in in files[: max(free, 0)]]


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


def _below(folder: Path, items: Iterator[Path] | Sequence[Path]) -> list[tuple[Path, str]]:
    return [(file, file.relative_to(folder).as_posix()) for file in sorted(items) if file.is_file()]


def _opened(file: Path) -> io.FileIO | None:
    with suppress(OSError):  # it is said where it is read
        opened = io.FileIO(file)
        _OPEN.add(opened)
        return opened
    return None


def read_artifact(
    file: ArtifactFile, *, artifact_type: str, aliases: Sequence[str], run_folder: Path | None = None
) -> tuple[bytes, Mapping[str, object]]:
    """Return (content or nothing, attributes) of a file; it is hashed piece by piece, and closed.

    Args:
        file: of an artifact.
        artifact_type: what kind of thing it is.
        aliases: further names.
        run_folder: where a large file is kept for the service, whatever becomes of its name; None: it is not.

    Raises:
        OSError: it cannot be read.
    """
    digest = hashlib.sha256()
    content = bytearray()
    size = 0
    with file.opened or io.FileIO(file.path) as opened:
        is_inline = os.fstat(opened.fileno()).st_size <= MAX_INLINE
        while piece := opened.read(2**20):
            digest.update(piece)
            size += len(piece)
            if is_inline:
                content += piece
        if size > MAX_INLINE and run_folder is not None:
            with suppress(OSError):  # then it is as with a service elsewhere: the name has to stay
                _keep(opened, file.path, kept_folder(run_folder) / digest.hexdigest())
    if size > MAX_INLINE:  # it grew while it was read
        content.clear()
    return bytes(content), {
        "ml.artifact.type": artifact_type,
        "ml.artifact.path_in": file.path_in,
        "ml.artifact.uri": file.path.absolute().as_uri(),
        "ml.artifact.size": size,
        "ml.artifact.sha256": digest.hexdigest(),
        "ml.artifact.aliases": list(aliases),
    }


def _keep(opened: io.FileIO, path: Path, kept: Path) -> None:
    """Give an open file a name of our own: a link, or a copy where it has no name any more.

    One on another disk that still has its name is left to the service, which would copy it too.
    """
    if kept.exists():
        return
    for folder in (kept.parent.parent, kept.parent):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = kept.with_name(f"{kept.name}.{os.getpid()}")
    fresh.unlink(missing_ok=True)
    try:
        _link(opened, fresh)
    except OSError:
        if _is_still(opened, path):
            return
        _copy(opened, fresh)
    fresh.replace(kept)


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


def _copy(opened: io.FileIO, fresh: Path) -> None:
    opened.seek(0)
    try:
        with io.FileIO(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "w") as copy:
            shutil.copyfileobj(opened, copy, 2**20)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise
