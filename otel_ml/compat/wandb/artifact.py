"""`wandb.Artifact`: files under one name."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import IO, Any

import otel_ml
from otel_ml.compat.tracking.said import not_kept
from otel_ml.compat.wandb.media import Media

__all__ = ["Artifact"]


class Artifact:
    """Files, folders and media that are logged together."""

    def __init__(
        self,
        name: str,
        type: str = "file",  # noqa: A002 (W&B's name)
        description: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        del options
        self.name = name
        self.type = type
        self.description = description
        self.metadata: dict[str, Any] = dict(metadata or {})
        self.aliases: list[str] = []
        self._paths: list[Path] = []
        self._objects: dict[str, Media] = {}
        self._references: list[str] = []
        self._written: Path | None = None

    def add_file(self, local_path: str | PathLike[str], name: str | None = None, **options: Any) -> None:
        """Add a file."""
        del options
        path = Path(local_path)
        if name is not None and Path(name).name != path.name:
            not_kept(f"Artifact.add_file(name={name!r})", f"the file keeps its name {path.name!r}.")
        self._paths.append(path)

    def add_dir(self, local_path: str | PathLike[str], name: str | None = None, **options: Any) -> None:
        """Add a folder."""
        del name, options
        self._paths.append(Path(local_path))

    def add(self, obj: Any, name: str, **options: Any) -> None:
        """Add a table, an image, …."""
        del options
        if isinstance(obj, Media):
            self._objects[name] = obj
        else:
            not_kept(f"Artifact.add({name!r})", f"a {type(obj).__name__} cannot be added. Write it to a file.")

    def add_reference(self, uri: Any, name: str | None = None, **options: Any) -> list[Any]:
        """Add the address of something that stays where it is."""
        del name, options
        self._references.append(str(uri))
        return []

    @contextmanager
    def new_file(self, name: str, mode: str = "w", encoding: str | None = None) -> Iterator[IO[Any]]:
        """Open a new file that belongs to the artifact."""
        if self._written is None:
            self._written = Path(tempfile.mkdtemp(prefix="otel-ml-artifact-"))
        path = self._written / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open(mode, encoding=encoding) as file:
            yield file
        self._paths.append(path)

    def wait(self, timeout: float | None = None) -> Artifact:
        """Return at once: files are read in the background."""
        del timeout
        return self

    def download(self, root: str | PathLike[str] | None = None, **options: Any) -> str:
        """Copy what was added to a folder, and return it."""
        del options
        folder = Path(root) if root is not None else Path("artifacts") / self.name
        folder.mkdir(parents=True, exist_ok=True)
        for path in self._paths:
            if path.is_dir():
                shutil.copytree(path, folder, dirs_exist_ok=True)
            else:
                shutil.copy2(path, folder)
        return str(folder)

    def keep(self, aliases: Iterable[str] = ()) -> None:
        """Record all that was added."""
        chosen = [*self.aliases, *aliases]
        for path in self._paths:
            otel_ml.log_artifact(path, name=self.name, type=self.type, aliases=chosen)
        for name, item in self._objects.items():
            item.keep(f"{self.name}/{name}", None, None)
        said = {"description": self.description, "references": self._references, **self.metadata}
        if kept := {key: value for key, value in said.items() if value}:
            otel_ml.log_params({self.name: kept}, prefix="artifacts")

    def forget(self) -> None:
        """Remove what `new_file()` wrote, once the run has ended."""
        if self._written is not None:
            shutil.rmtree(self._written, ignore_errors=True)
