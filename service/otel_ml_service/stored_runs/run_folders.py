"""Find run folders: `<OTEL_ML_DIR>/<experiment name>/<id>/`."""

from __future__ import annotations

import difflib
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from otel_ml.config import Config
from otel_ml.exceptions import ConfigError
from otel_ml.wire.folder_content import inside
from otel_ml.wire.readable_name import readable_name
from otel_ml_service.stored_runs.shortened_name import is_part_of

__all__ = [
    "LATEST",
    "RunFolder",
    "RunNotFoundError",
    "called",
    "find",
    "is_there",
    "no_run_in",
    "run_folders",
    "unreadable_folders",
]

LATEST = "latest"
"""What a user may write for the run that was written to last."""

_MARKS = ("state/run.db", "metrics.jsonl")
"""Files of which a run's folder holds at least one."""


class RunNotFoundError(ConfigError):
    """No run, or more than one, is meant by a text."""

    slug = "run-not-found"


@dataclass(frozen=True)
class RunFolder:
    """The folder of one run."""

    path: Path

    @property
    def id(self) -> str:
        """The experiment id, as far as a path can hold it."""
        return self.path.name

    @property
    def experiment(self) -> str:
        """The experiment's name, as far as a path can hold it."""
        return self.path.parent.name

    @property
    def name(self) -> str:
        """What people call the run; for one that an older service recorded, what is made of its id."""
        return self._text("name") or readable_name(self.id)

    @property
    def notes(self) -> str:
        """The text of `init(notes=)`; empty where there is none."""
        return self._text("notes")

    def _text(self, file: str) -> str:
        try:
            return (self.path / "state" / file).read_text(encoding="utf-8")
        except (OSError, ValueError):
            return ""

    @property
    def database(self) -> Path:
        """The service's own file of the run."""
        return self.path / "state" / "run.db"

    @property
    def jsonl(self) -> Path:
        """What the exporter `jsonl` writes; where there is none of that name, the first of its instances."""
        own = self.path / "metrics.jsonl"
        if is_there(own):
            return own
        others = (folder / own.name for folder in inside(self.path) if folder.name.startswith("jsonl-"))
        return min(filter(is_there, others), default=own)

    @cached_property
    def modified(self) -> float:
        """Seconds since the epoch of the last write to the run, as far as it can be read; 0 where nothing can."""
        written = (self.database, self.database.with_name("run.db-wal"), self.jsonl)
        times = [found.st_mtime for path in written if (found := _status(path)) is not None]
        folder = _status(self.path)
        return max(times, default=0.0 if folder is None else folder.st_mtime)

    @cached_property
    def last_record(self) -> float:
        """Seconds since the epoch of the newest record, as far as it can be told; the end of a service is none."""
        found = _status(self.jsonl)
        return self.modified if found is None else found.st_mtime

    def size(self) -> int:
        """Bytes of all files in the folder that can be seen."""
        # What a service removes meanwhile, `walk` passes over; `rglob` would raise.
        paths = (Path(at, name) for at, folders, files in os.walk(self.path) for name in (*folders, *files))
        found = [status for path in paths if (status := _status(path, follow=False)) is not None]
        return sum(status.st_size for status in found if not stat.S_ISDIR(status.st_mode))

    def is_run(self) -> bool:
        """Whether the folder holds a run at all, as far as it can be read."""
        found = [_status(self.path / mark) for mark in _MARKS]
        return any(status is not None and stat.S_ISREG(status.st_mode) for status in found)


def is_there(path: Path) -> bool:
    """Whether there is something of this name, and one may know."""
    return _status(path) is not None


def _status(path: Path, *, follow: bool = True) -> os.stat_result | None:
    try:
        return path.stat(follow_symlinks=follow)
    except (OSError, ValueError):  # no file, nobody lets us look, a loop of links; a NUL in the name
        return None


def run_folders(base: Path) -> list[RunFolder]:
    """Return all runs under `base` that can be read, the newest first."""
    candidates = (RunFolder(path) for experiment in inside(base) for path in inside(experiment))
    return sorted((run for run in candidates if run.is_run()), key=lambda run: run.last_record, reverse=True)


def no_run_in(base: Path) -> str:
    """Return that a folder has no run, and where else to look: one that is not there is often misspelled."""
    why = "" if base.exists() else ": the folder does not exist"
    return f"There is no run in {str(base)!r}{why}. {_where_else()}"


def _where_else() -> str:
    """Return where a person who finds no run in a folder may look, a sentence."""
    config = Config.from_env()
    if not config.is_remote:
        return "Set OTEL_ML_DIR to the folder of your runs, or try `otel-ml demo`."
    endpoint = config.endpoint
    return (
        f"Jobs send to {endpoint.shown} ({endpoint.source}): their runs are in a folder of the service there. "
        "On its host, name that by --dir or OTEL_ML_DIR."
    )


def unreadable_folders(base: Path) -> list[Path]:
    """Return the folders under `base` that may hold runs, of users who let this one not look."""
    above = [path for path in inside(base) if _is_folder(path)]
    below = [path for experiment in above for path in inside(experiment) if _is_folder(path)]
    return sorted(path for path in (*above, *below) if not _may_look(path))


def _is_folder(path: Path) -> bool:
    status = _status(path)
    return status is not None and stat.S_ISDIR(status.st_mode)


def _may_look(path: Path) -> bool:
    return os.access(path, os.R_OK | os.X_OK)


def find(text: str, base: Path) -> RunFolder:
    """Return the run meant by a folder, an id or its beginning, a name or a part of it, `experiment/…`, `latest`.

    Of several runs with the name, or in the experiment, it is the newest.

    Raises:
        RunNotFoundError: none is, or several are; the message lists what there is.
    """
    given = Path(text)
    if given.name in {"metrics.jsonl", "run.db"}:
        given = given.parent.parent if given.name == "run.db" else given.parent
    if RunFolder(given).is_run():
        return RunFolder(given.resolve())
    if _is_folder(given) and not _may_look(given):
        raise RunNotFoundError(f"{str(given)!r} cannot be read: its owner does not let this user look into it.")
    runs = run_folders(base)
    if text == LATEST and runs:
        return runs[0]
    return _chosen(text, base, runs)


def _chosen(text: str, base: Path, runs: Sequence[RunFolder]) -> RunFolder:
    exact = [run for run in runs if text in {run.id, f"{run.experiment}/{run.id}"}]
    named = exact or [run for run in runs if text in {run.name, f"{run.experiment}/{run.name}"}]
    if named:
        return named[0]  # of several that were given the same name, the newest
    # An empty text is the beginning of each id.
    found = [run for run in runs if text and (run.id.startswith(text) or run.experiment == text)]
    if len(found) == 1:
        return found[0]
    if found and all(run.experiment == text for run in found):
        return found[0]  # an experiment's name stands for its newest run
    if found:
        raise RunNotFoundError(
            f"{text!r} is the beginning of {len(found)} runs: {_listed(found)}. Write more characters of the id."
        )
    parts = [run for run in runs if _has_part(run, text)]
    # Several runs of one name leave nothing to ask: the newest is meant, as where the whole name is written.
    if len({(run.experiment, run.name) for run in parts}) == 1:
        return parts[0]
    if parts:
        raise RunNotFoundError(
            f"{text!r} is a part of the names of {len(parts)} runs: {_listed(parts)}. Write more of a name, or an id."
        )
    if not runs:
        raise RunNotFoundError(no_run_in(base))
    names = [LATEST, *(known for run in runs for known in (run.name, run.id))]
    near = difflib.get_close_matches(text, names, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise RunNotFoundError(f"No run in {str(base)!r} is called {text!r}.{hint} There are: {_listed(runs)}.")


def _has_part(run: RunFolder, text: str) -> bool:
    names = (run.id, run.name, f"{run.experiment}/{run.name}")
    return any(is_part_of(text, name) for name in names)


def called(run: RunFolder) -> str:
    """Return the name of a run with its id, or its id alone where it has no other name."""
    return run.id if run.name == run.id else f"{run.name} ({run.id})"


def _listed(runs: Sequence[RunFolder], most: int = 5) -> str:
    shown = ", ".join(called(run) for run in runs[:most])
    return f"{shown}, … (`otel-ml runs` lists all {len(runs)})" if len(runs) > most else shown
