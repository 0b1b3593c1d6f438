"""One file of a `wandb.Artifact`."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

__all__ = ["ArtifactEntry"]


@dataclass(frozen=True, slots=True)
class ArtifactEntry:
    """A file that was added.

    Attributes:
        path: inside of the artifact.
        local_path: where it is.
        folder: where the artifact is downloaded to, where nobody says it.
        ref: an address, which no file that was added has.
    """

    path: str
    local_path: str
    folder: str
    ref: str | None = None

    @property
    def name(self) -> str:
        """Its path inside of the artifact."""
        return self.path

    @property
    def size(self) -> int:
        """Bytes."""
        return Path(self.local_path).stat().st_size

    def download(
        self, root: str | PathLike[str] | None = None, skip_cache: bool | None = None, executor: object = None
    ) -> str:
        """Copy it below `root`, and return where it is then. The other options, of W&B's own cache, change nothing."""
        del skip_cache, executor
        place = Path(self.folder if root is None else root) / self.path
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(self.local_path, place)
        return str(place)
