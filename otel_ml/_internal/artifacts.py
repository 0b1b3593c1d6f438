"""Files of the run: content inline up to 4 MiB, else a reference with size and SHA-256 (CONTRACT §4)."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from otel_ml.exceptions import OtelMLError

__all__ = ["MAX_INLINE", "artifact_files", "read_artifact"]

MAX_INLINE = 4 * 2**20
MAX_FILES = 10_000
"""A folder with more is a data set, not an artifact: its path is what to keep (`log_params`)."""


class ArtifactError(OtelMLError):
    """A file that cannot be read."""

    slug = "missing-artifact"


def artifact_files(path: Path) -> Iterator[tuple[Path, str]]:
    """Yield (file, its path inside the artifact); a folder's files in order.

    Raises:
        ArtifactError: there is no such file, or the folder has too many.
    """
    if path.is_file():
        yield path, path.name
        return
    if not path.is_dir():
        raise ArtifactError(f"log_artifact(): no file or folder {str(path)!r}. Expected one that exists at the call.")
    found = sorted(item for item in path.rglob("*") if item.is_file())
    if len(found) > MAX_FILES:
        raise ArtifactError(f"log_artifact(): {str(path)!r} has {len(found)} files. Expected at most {MAX_FILES}.")
    for item in found:
        yield item, item.relative_to(path).as_posix()


def read_artifact(
    file: Path, path_in: str, *, artifact_type: str, aliases: Sequence[str]
) -> tuple[bytes, Mapping[str, object]]:
    """Return (content or nothing, attributes) of a file; it is hashed piece by piece.

    Raises:
        OSError: it cannot be read.
    """
    digest = hashlib.sha256()
    content = bytearray()
    size = 0
    with file.open("rb") as opened:
        is_inline = os.fstat(opened.fileno()).st_size <= MAX_INLINE
        while piece := opened.read(2**20):
            digest.update(piece)
            size += len(piece)
            if is_inline:
                content += piece
    if size > MAX_INLINE:  # it grew while it was read
        content.clear()
    return bytes(content), {
        "ml.artifact.type": artifact_type,
        "ml.artifact.path_in": path_in,
        "ml.artifact.uri": file.absolute().as_uri(),
        "ml.artifact.size": size,
        "ml.artifact.sha256": digest.hexdigest(),
        "ml.artifact.aliases": list(aliases),
    }
