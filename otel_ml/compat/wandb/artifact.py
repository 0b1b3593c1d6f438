"""`wandb.Artifact`: files under one name; and `use_artifact()`: what this run has logged itself, and what W&B has."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

import otel_ml
from otel_ml._internal.events.artifact_calls import log_artifact_as
from otel_ml._internal.events.temporary_folder import TemporaryFolder
from otel_ml._internal.safe_repr import safe_repr
from otel_ml.compat.tracking.not_kept import not_kept, options_not_kept
from otel_ml.compat.wandb.artifact_entry import ArtifactEntry
from otel_ml.compat.wandb.errors import CommError
from otel_ml.compat.wandb.files_as_added import FilesAsAdded
from otel_ml.compat.wandb.media import Media
from otel_ml.explanation import explained

__all__ = ["OF_THE_SERVER", "Artifact", "used"]

OF_THE_SERVER = frozenset(
    {"checkout", "collection", "distributed_id", "incremental", "tags", "use_as",
     "commit_hash", "created_at", "delete", "digest", "digest_algorithm", "entity",
     "files", "history_step", "id",
     "is_link", "json_encode", "link", "linked_artifacts", "linked_at", "logged_by", "new_draft",
     "project", "qualified_name", "source_artifact", "source_collection", "source_entity",
     "source_name", "source_project", "source_qualified_name", "source_version", "ttl", "unlink",
     "updated_at", "url", "used_by", "verify", "version"}
)  # fmt: skip
"""Members of W&B's own class that speak of a version on its server."""


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
        options_not_kept("wandb.Artifact", "an artifact is its files, with a type and aliases.", **options)
        wrong = _what_is_wrong(name, type)
        if wrong is not None:
            not_kept(f"wandb.Artifact({safe_repr(name, 60)}, {safe_repr(type, 40)})", f"ValueError: {wrong}")
        # Kept also where W&B would refuse it: the exporter `wandb` gives it a name that W&B takes.
        self.name = name
        self.type = type
        self.description = description
        self.metadata: dict[str, Any] = _mapping(metadata)
        self.aliases: list[str] = []
        # A list, and not a dictionary: the same place may be added again, and a folder may hold a place that was added,
        # too.
        self._placed: list[tuple[str, Path]] = []
        self._added = FilesAsAdded()
        self._objects: dict[str, Media] = {}
        self._references: list[str] = []
        self._written: TemporaryFolder | None = None

    def add_file(
        self,
        local_path: str | PathLike[str],
        name: str | None = None,
        is_tmp: bool | None = False,
        skip_cache: bool | None = False,
        policy: str | None = "mutable",
        overwrite: bool = False,
    ) -> ArtifactEntry | None:
        """Add a file, as `name` inside of the artifact; None where it is not there (said).

        It is kept as it is now, unless its policy is `immutable`. The other options, of W&B's cache, change nothing.
        """
        del skip_cache, overwrite
        options_not_kept("Artifact.add_file", "the file keeps its name.", is_tmp=is_tmp)
        # A wrong path is a mistake of the program that W&B ends with: here the artifact is recorded without it.
        path = Path(local_path)
        if not path.is_file():
            not_kept("Artifact.add_file()", f"ValueError: Path is not a file: {str(local_path)!r}. It is left out.")
            return None
        self._placed.append((name or path.name, path))
        if policy != "immutable":
            self._added.add(name or path.name, path)
        return self._entry(name or path.name, path)

    def add_dir(
        self,
        local_path: str | PathLike[str],
        name: str | None = None,
        skip_cache: bool | None = False,
        policy: str | None = "mutable",
        merge: bool = False,
    ) -> None:
        """Add what a folder has, below `name`, see `add_file()`."""
        del skip_cache, merge
        path = Path(local_path)
        if not path.is_dir():
            not_kept("Artifact.add_dir()", f"ValueError: Path is not a directory: {str(local_path)!r}. It is left out.")
            return
        # With a `/` before it `Path` would take the place for one outside of the artifact, and behind it `FilesAsAdded`
        # would not find its files by `<place>/`.
        place = (name or "").strip("/")
        self._placed.append((place, path))
        if policy != "immutable":
            self._added.add(place, path)

    def add_path(self, path: str | PathLike[str]) -> None:
        """Add a file, a folder or an address, as `run.log_artifact()` is given one, which opens it at once."""
        if Path(path).is_dir():
            # `immutable`: it is recorded in the same call, and nobody can change it in between.
            self.add_dir(path, policy="immutable")
        elif "://" in str(path) and not Path(path).is_file():
            self.add_reference(path)
        else:
            self.add_file(path, policy="immutable")

    def add(self, obj: Any, name: str, overwrite: bool = False) -> None:
        """Add a table, an image, …; one of the same name is replaced, with `overwrite` or without."""
        del overwrite
        if isinstance(obj, Media):
            self._objects[name] = obj
        else:
            wrong = f"TypeError: a {type(obj).__name__} cannot be added"
            not_kept(f"Artifact.add({name!r})", f"{wrong}. Write it to a file.")

    def add_reference(
        self, uri: Any, name: str | None = None, checksum: bool = True, max_objects: int | None = None
    ) -> list[Any]:
        """Add the address of something that stays where it is; nothing is looked at there, whatever `checksum` says."""
        del checksum
        options_not_kept("Artifact.add_reference", "the address is recorded alone.", name=name, max_objects=max_objects)
        self._references.append(str(uri))
        return []

    @contextmanager
    def new_file(
        self, name: str, mode: str = "w", encoding: str | None = None, policy: str | None = None
    ) -> Iterator[IO[Any]]:
        """Open a new file that belongs to the artifact; `policy`, of W&B's own cache, changes nothing."""
        del policy
        if self._written is None:
            self._written = TemporaryFolder("artifact")
        path = self._written.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open(mode, encoding=encoding) as file:
            yield file
        # Behind the block: only then the file is whole, and one whose block raises is not part of the artifact. No copy
        # is made, as nobody else writes into our folder.
        self._placed.append((name, path))

    def get_entry(self, name: str | PathLike[str]) -> ArtifactEntry:
        """Return a file by its path inside of the artifact.

        Raises:
            KeyError: there is none.
        """
        asked = Path(name).as_posix()
        found = [entry for entry in self._entries() if entry.path == asked]
        if not found:
            raise KeyError(f"Path not contained in artifact: {asked}")
        return found[-1]

    get_path = get_entry

    def get(self, name: str) -> Any:
        """Return the table, the image, … that was added under a name, or None."""
        return self._objects.get(name)

    def get_added_local_path_name(self, local_path: str) -> str | None:
        """Return the path inside of the artifact of a file that was added from here, or None."""
        # By where it was, and not by where its content is kept.
        return next((place for place, file in _files(self._placed) if str(file) == str(local_path)), None)

    def file(self, root: str | PathLike[str] | None = None) -> str:
        """Copy the one file of the artifact below `root`, and return where it is then.

        Raises:
            ValueError: it has none, or several.
        """
        entries = self._entries()
        if len(entries) != 1:
            several = f"{self.name!r} has {len(entries)} files, expected one"
            raise ValueError(f"{several}. Call download(), or get_entry(name).download().")
        return entries[0].download(root)

    def remove(self, item: str | PathLike[str] | ArtifactEntry) -> None:
        """Take out a file, all files of a folder, or what was added under a name; what was logged stays.

        Raises:
            FileNotFoundError: there is no such thing in it.
        """
        # An entry that was got before is looked up by its path, too: it may not be in the artifact anymore.
        path = item.path if isinstance(item, ArtifactEntry) else Path(item).as_posix()
        entries = self._entries()
        # With the slash: `data` is not the folder of `data2/a.txt`.
        kept = [entry for entry in entries if entry.path != path and not entry.path.startswith(f"{path}/")]
        if self._objects.pop(path, None) is None and len(kept) == len(entries):
            raise FileNotFoundError(f"No such file or directory: {path}")
        # A folder was one entry of `_placed`; what is left of it is in there file by file.
        self._placed = [(entry.path, Path(entry.local_path)) for entry in kept]

    def _entries(self) -> list[ArtifactEntry]:
        """Return the files that were added, also in folders; one that is added anew is the last of its name."""
        # The same place again: the newer file counts, at the place of the older one.
        found = {place: self._entry(place, file) for place, file in _files(self._as_added()) if file.is_file()}
        return list(found.values())

    def _as_added(self) -> Iterator[tuple[str, Path]]:
        """Yield what was added, and where its content of then is by now."""
        for added in self._placed:
            yield from self._added.now(*added)

    def _entry(self, place: str, path: Path) -> ArtifactEntry:
        return ArtifactEntry(place, str(path), str(Path("artifacts") / self.name))

    @property
    def manifest(self) -> SimpleNamespace:
        """What was added: `entries` are files by their path inside of the artifact."""
        return SimpleNamespace(entries={entry.path: entry for entry in self._entries()})

    @property
    def state(self) -> str:
        """`PENDING`: only W&B's server has a version that is committed."""
        return "PENDING"

    @property
    def file_count(self) -> int:
        """How many files were added, also in folders."""
        return len(self._entries())

    @property
    def size(self) -> int:
        """Bytes of all files that were added."""
        return sum(entry.size for entry in self._entries())

    def finalize(self) -> None:
        """Do nothing: what is added later is recorded when the artifact is logged again."""

    def is_draft(self) -> bool:
        """Return True: only W&B's server numbers versions."""
        return True

    def save(self, project: str | None = None, settings: Any = None) -> None:
        """Record what was added, in the run that is active."""
        options_not_kept("Artifact.save", "it is recorded in the run that is active.", project=project)
        del settings
        self.keep()

    def __getattr__(self, name: str) -> Any:
        if name in OF_THE_SERVER:
            sentence = (
                f"wandb.Artifact.{name} is what W&B's server knows of an artifact; otel_ml does not ask it. Use "
                "run.use_artifact(name), or wandb.Api()."
            )
            raise AttributeError(explained(sentence, "not-kept"))
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def wait(self, timeout: float | None = None) -> Artifact:
        """Return at once: files are read in the background."""
        del timeout
        return self

    def download(
        self,
        root: str | PathLike[str] | None = None,
        allow_missing_references: bool = False,
        skip_cache: bool | None = None,
        path_prefix: str | None = None,
        multipart: bool | None = None,
    ) -> str:
        """Copy what was added to a folder, and return it."""
        del allow_missing_references, skip_cache, multipart
        options_not_kept("Artifact.download", "all files that were added are copied.", path_prefix=path_prefix)
        folder = Path(root) if root is not None else Path("artifacts") / self.name
        folder.mkdir(parents=True, exist_ok=True)
        # A file that W&B would fetch from its server is copied from where it is kept in this process; references, which
        # are addresses alone, are not among them.
        for name, path in self._as_added():
            place = folder / name
            if path.is_dir():
                shutil.copytree(path, place, dirs_exist_ok=True)
            else:
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, place)
        return str(folder)

    def keep(self, aliases: Iterable[str] = ()) -> None:
        """Record all that was added."""
        chosen = [*self.aliases, *aliases]
        for place, path in self._as_added():
            log_artifact_as(place, path, name=self.name, type=self.type, aliases=chosen)
        for name, item in self._objects.items():
            item.keep(f"{self.name}/{name}", None, None)
        # What the program says of it itself may replace the two.
        said = {"description": self.description, "references": self._references, **self.metadata}
        if kept := {key: value for key, value in said.items() if value}:
            otel_ml.log_params({self.name: kept}, prefix="artifacts")

    def forget(self) -> None:
        """Let go of what `new_file()` wrote and of copies of what was added: the run has ended."""
        self._added.forget()
        self._written = None


def _files(placed: Iterable[tuple[str, Path]]) -> Iterator[tuple[str, Path]]:
    """Yield the place of each file, and the file, also of those in folders."""
    for name, path in placed:
        if path.is_dir():
            files = (one for one in sorted(path.rglob("*")) if one.is_file())
            yield from (((Path(name) / one.relative_to(path)).as_posix(), one) for one in files)
        else:
            yield name, path


def _mapping(given: Any) -> dict[str, Any]:
    """Return metadata as a dictionary; said, and none, where W&B takes no such thing."""
    if isinstance(given, Mapping) or not given:
        return dict(given or {})
    wrong = f"TypeError: Cannot parse {type(given)} as artifact metadata"
    not_kept(f"wandb.Artifact(metadata={safe_repr(given, 40)})", f"{wrong}. It has none.")
    return {}


def _what_is_wrong(name: Any, kind: Any) -> str | None:
    """Return why W&B takes no artifact of this name or type."""
    if re.fullmatch(r"[\w.-]+", str(name), re.ASCII) is None:
        return "a name has letters, digits, '-', '_' and '.'. In W&B it is called otherwise."
    if str(kind) == "job" or str(kind).startswith("wandb-"):
        return "W&B keeps this type for itself. In other backends the artifact has it."
    return None


def used(
    artifact_or_name: Any,
    logged: Sequence[Artifact],
    kind: str | None,
    *,
    is_offline: bool,
) -> Any:
    """Return the artifact: as given, the one of that name logged last, or that of W&B's server.

    Raises:
        CommError: there is no such artifact here, and W&B cannot be asked.
    """
    if not isinstance(artifact_or_name, str):
        return artifact_or_name
    # `entity/project/name:alias` → `name`: of what this run has logged there is only the newest.
    name = artifact_or_name.rpartition("/")[2].partition(":")[0]
    own = [artifact for artifact in logged if artifact.name == name]
    # The newest: one name may be logged several times, and only W&B's server numbers them.
    if own:
        return own[-1]
    if is_offline:
        raise CommError(f"This run has logged no artifact {name!r}, and is offline: W&B is not asked.")
    try:
        import wandb
    except ImportError:
        raise CommError(f"This run has logged no artifact {name!r}; W&B's are read by the package 'wandb'.") from None
    return wandb.Api().artifact(artifact_or_name, kind)
