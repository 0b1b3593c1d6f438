"""Find run folders: `<OTEL_ML_DIR>/<experiment name>/<id>/`."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from otel_ml.exceptions import ConfigError

__all__ = ["LATEST", "RunFolder", "RunNotFoundError", "find", "run_folders"]

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
    def database(self) -> Path:
        """The service's own file of the run."""
        return self.path / "state" / "run.db"

    @property
    def jsonl(self) -> Path:
        """What the exporter `jsonl` writes; where there is none of that name, the first of its instances."""
        own = self.path / "metrics.jsonl"
        return own if own.exists() else min(self.path.glob("jsonl-*/metrics.jsonl"), default=own)

    @cached_property
    def modified(self) -> float:
        """Seconds since the epoch of the last write to the run."""
        found = [path.stat().st_mtime for path in (self.database, self.database.with_name("run.db-wal"), self.jsonl)
                 if path.exists()]  # fmt: skip
        return max(found, default=self.path.stat().st_mtime)

    def size(self) -> int:
        """Bytes of all files in the folder."""
        return sum(path.lstat().st_size for path in self.path.rglob("*") if not path.is_dir())

    def is_run(self) -> bool:
        """Whether the folder holds a run at all."""
        return any((self.path / mark).is_file() for mark in _MARKS)


def run_folders(base: Path) -> list[RunFolder]:
    """Return all runs under `base`, the newest first."""
    candidates = (RunFolder(path) for path in base.glob("*/*") if path.is_dir())
    return sorted((run for run in candidates if run.is_run()), key=lambda run: run.modified, reverse=True)


def find(text: str, base: Path) -> RunFolder:
    """Return the run meant by a folder, an id, the beginning of an id, `experiment/id`, or `latest`.

    Raises:
        RunNotFoundError: none is, or several are; the message lists what there is.
    """
    given = Path(text)
    if given.name in {"metrics.jsonl", "run.db"}:
        given = given.parent.parent if given.name == "run.db" else given.parent
    if RunFolder(given).is_run():
        return RunFolder(given.resolve())
    runs = run_folders(base)
    if text == LATEST and runs:
        return runs[0]
    return _chosen(text, base, runs)


def _chosen(text: str, base: Path, runs: Sequence[RunFolder]) -> RunFolder:
    exact = [run for run in runs if text in {run.id, f"{run.experiment}/{run.id}"}]
    found = exact or [run for run in runs if text and (run.id.startswith(text) or run.experiment == text)]
    if len(found) == 1:
        return found[0]
    if found and all(run.experiment == text for run in found):
        return found[0]  # an experiment's name stands for its newest run
    if found:
        raise RunNotFoundError(
            f"{text!r} is the beginning of {len(found)} runs: {_listed(found)}. Write more characters of the id."
        )
    if not runs:
        raise RunNotFoundError(
            f"There is no run in {str(base)!r}. Set OTEL_ML_DIR to the folder of your runs, or try `otel-ml demo`."
        )
    near = difflib.get_close_matches(text, [run.id for run in runs], n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise RunNotFoundError(f"No run in {str(base)!r} is called {text!r}.{hint} There are: {_listed(runs)}.")


def _listed(runs: Sequence[RunFolder], most: int = 5) -> str:
    shown = ", ".join(run.id for run in runs[:most])
    return f"{shown}, … (`otel-ml runs` lists all {len(runs)})" if len(runs) > most else shown
