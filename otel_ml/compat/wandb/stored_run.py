"""A run as its own folder has it, in the form in which `wandb.Api().run()` returns one."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from otel_ml._internal.lifecycle.read_run import record_lines
from otel_ml._internal.safe_repr import text_of
from otel_ml.compat.tracking.not_kept import not_kept
from otel_ml.compat.tracking.recorded_files import copied
from otel_ml.explanation import explained
from otel_ml.wire.attributes import DEFAULT_AXIS, STEP_METRICS_PARAM
from otel_ml.wire.published_name import is_own, matches_beginning
from otel_ml.wire.summary_texts import summary_texts

__all__ = ["StoredArtifact", "StoredFile", "StoredRun"]

_STATES = {"killed": "crashed"}
"""What W&B calls what a run ended as, where it has another word."""

_SAVED = "file"
"""The type of what `wandb.save()` records; every other one is an artifact's."""

_WINDOWS = "time"
"""The axis of what is measured beside training, which W&B calls the stream `system`."""

_OF_THE_SERVER = frozenset({"delete", "log_artifact", "save", "stop", "update", "update_state", "upload_file"})
"""Methods that change what W&B's server has."""


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file that the run has recorded.

    Attributes:
        name: its path in the run, or in the artifact.
        size: bytes.
        path_uri: where it was when it was recorded.
    """

    name: str
    size: int
    path_uri: str
    _there: str

    def download(self, root: str = ".", replace: bool = False, exist_ok: bool = False, api: Any = None) -> Any:
        """Copy it below `root`, and return the copy, open to be read.

        Raises:
            ValueError: as W&B's: there is such a file, and neither `replace` nor `exist_ok` is true; or its name leads
                out of `root`.
        """
        del api
        copy = Path(root) / self.name
        if copy.exists() and not (replace or exist_ok):
            raise ValueError(
                explained(f"{str(copy)!r} is there already. Pass replace=True, or exist_ok=True.", "not-kept")
            )
        if replace or not copy.exists():
            copied(self._there, root, self.name)
        return copy.open(encoding="utf-8", errors="replace")


@dataclass(frozen=True, slots=True)
class StoredArtifact:
    """An artifact that the run has logged: the newest of its name."""

    name: str
    type: str
    _files: tuple[StoredFile, ...]

    def files(self) -> list[StoredFile]:
        """Return what is in it."""
        return [*self._files]

    def download(self, root: str | None = None) -> str:
        """Copy its files to a folder, by default `artifacts/<name>`, and return where that is."""
        folder = root or str(Path("artifacts") / self.name)
        for file in self._files:
            file.download(folder, replace=True).close()
        return folder


class StoredRun:
    """A run, read from `metrics.jsonl` whenever it is asked.

    Args:
        file: its `metrics.jsonl`.
        folder: of the run.
        name: what it is called.
        of_process: what else this process knows of it: `url`, `entity`, `tags`, `notes`, `group`, `job_type`.
    """

    def __init__(self, file: Path, folder: Path, name: str, of_process: Mapping[str, Any]) -> None:
        self._file = file
        self.id: str = folder.name
        self.project: str = folder.parent.name
        self.name: str = name
        self.entity: str = of_process.get("entity", "")
        self.url: str | None = of_process.get("url")
        self.tags: list[str] = [*of_process.get("tags", ())]
        self.notes: str | None = of_process.get("notes")
        self.group: str = of_process.get("group", "")
        self.job_type: str = of_process.get("job_type", "")

    def __repr__(self) -> str:
        return f"<Run {'/'.join(filter(None, self.path))} ({self.state}), of {str(self._file)!r}>"

    def __getattr__(self, name: str) -> Any:
        if name in _OF_THE_SERVER:
            return lambda *_, **__: not_kept(f"wandb.Api().run().{name}", "the run is read from its own folder.")
        sentence = (
            f"A run of wandb.Api() that is read from its folder has no {name!r}: W&B's server may have one, which "
            "`import wandb` asks."
        )
        raise AttributeError(explained(sentence, "not-kept"))

    @property
    def path(self) -> list[str]:
        """`[entity, project, id]`."""
        return [self.entity, self.project, self.id]

    @property
    def state(self) -> str:
        """`finished`, `failed`, or `crashed`, where it was killed; `running` until one of these is written.

        A run whose service was killed, too, has nobody who writes it before `otel-ml recover`, or its next start.
        """
        ended = [row["status"] for row in self._lines("status")]
        return _STATES.get(ended[-1], ended[-1]) if ended else "running"

    @property
    def created_at(self) -> str:
        """When its first record came: a time of ISO 8601, in UTC."""
        began = next((float(row["time"]) for row in self._lines()), 0.0)
        return f"{datetime.fromtimestamp(began, timezone.utc):%Y-%m-%dT%H:%M:%SZ}"

    @property
    def config(self) -> dict[str, Any]:
        """The parameters."""
        return {name: value for name, value in self._params().items() if not name.startswith("otel_ml")}

    @property
    def json_config(self) -> str:
        """The same, as text."""
        return json.dumps({name: {"value": value} for name, value in self.config.items()})

    @property
    def metadata(self) -> dict[str, Any]:
        """Program, arguments, host and the like."""
        return {**self._params().get("otel_ml", {})}

    @property
    def summary(self) -> dict[str, Any]:
        """Name → the last value, or what `run.summary` was given."""
        found: dict[str, Any] = {}
        # In this order: what the program has set itself wins over what it has logged.
        for row in self.scan_history():
            found.update({name: value for name, value in row.items() if value is not None})
        for line in self._lines("summary"):
            found.update({name: float(value) for name, value in line["values"].items() if not is_own(name)})
        for line in self._lines("params"):
            found.update(summary_texts(line["params"]))
        return found

    @property
    def system_metrics(self) -> dict[str, float]:
        """Name → the last value of what was measured beside training."""
        found: dict[str, float] = {}
        for row in self._rows(is_system=True):
            found.update({name: value for name, value in row.items() if not name.startswith("_")})
        return found

    @property
    def lastHistoryStep(self) -> int:  # noqa: N802 (W&B's name)
        """The last step; -1 where there is none."""
        return max((row["_step"] for row in self.scan_history() if "_step" in row), default=-1)

    def scan_history(
        self,
        keys: Sequence[str] | None = None,
        page_size: int = 1000,
        min_step: int = 0,
        max_step: int | None = None,
        use_cache: bool = True,
    ) -> Iterator[dict[str, Any]]:
        """Yield each row, or what is in `keys` of the rows that have all of these.

        A row has `_timestamp`, and `_step`; one of a metric with `step_metric=` has that instead of `_step`.
        """
        del page_size, use_cache
        end = float("inf") if max_step is None else max_step
        for row in self._rows(is_system=False):
            # A row of another axis has no `_step`, and is let pass.
            if not min_step <= row.get("_step", min_step) < end:
                continue
            if keys is None:
                yield row
            elif all(key in row for key in keys):
                yield {key: row[key] for key in keys}

    def history(
        self,
        samples: int = 500,
        keys: Sequence[str] | None = None,
        x_axis: str = "_step",
        pandas: bool = True,
        stream: str = "default",
    ) -> Any:
        """Return `samples` rows at most, evenly spread: a DataFrame, or a list where pandas is not installed."""
        wanted = None if keys is None else [*dict.fromkeys([x_axis, *keys])]
        rows = list(self._rows(is_system=True) if stream == "system" else self.scan_history(wanted))
        if len(rows) > samples:
            # The first row always; the last one is left out where the two numbers differ.
            rows = [rows[number * len(rows) // samples] for number in range(samples)]
        if pandas:
            try:
                return import_module("pandas").DataFrame(rows)
            except ImportError:
                not_kept("wandb.Api().run().history()", "pandas is not installed: a list is returned.")
        return rows

    def files(
        self, names: Sequence[str] | None = None, pattern: str | None = None, per_page: int = 50
    ) -> list[StoredFile]:
        """Return what `wandb.save()` has recorded; `pattern` is SQL's, with % and _."""
        del per_page
        wanted = _expression(pattern or "%")
        found = {_path_in_run(row): _stored(row, _path_in_run(row)) for row in self._artifact_rows() if _is_saved(row)}
        return [file for name, file in found.items() if wanted.fullmatch(name) and (not names or name in names)]

    def file(self, name: str) -> StoredFile:
        """Return one of `files()`.

        Raises:
            ValueError: there is none of this name.
        """
        for found in self.files([name]):
            return found
        raise ValueError(explained(f"Run {self.id!r} has no file {name!r}.", "not-kept"))

    def logged_artifacts(self, per_page: int = 100) -> list[StoredArtifact]:
        """Return the artifacts that the run has logged."""
        del per_page
        found: dict[str, dict[str, Mapping[str, Any]]] = {}
        # By name and then by path: a dictionary keeps the place of a key that is set again.
        for row in self._artifact_rows():
            if not _is_saved(row):
                # Of a file that was recorded again the newest row counts.
                found.setdefault(row["name"], {})[row["path_in"]] = row
        return [
            StoredArtifact(name, next(iter(rows.values()))["artifact_type"], tuple(map(_stored, rows.values(), rows)))
            for name, rows in found.items()
        ]

    def load(self, force: bool = False) -> SimpleNamespace:
        """Do nothing: the file is read each time."""
        del force
        return SimpleNamespace()

    def wait_until_finished(self) -> None:
        """Return at once where it has ended; else say that nobody waits here."""
        if self.state == "running":
            not_kept("wandb.Api().run().wait_until_finished()", "nothing waits, and no end of the run is written yet.")

    def _rows(self, *, is_system: bool) -> Iterator[dict[str, Any]]:
        """Yield a row for each step, in the order in which they came; of several attempts the newest values count."""
        rows: dict[tuple[str, int], dict[str, Any]] = {}
        step_metrics = self._params().get(STEP_METRICS_PARAM, ())
        # Windows alone are the stream `system`, and all others are the history.
        lines = [line for line in self._lines() if "axis" in line and (line["axis"] == _WINDOWS) == is_system]
        for line in sorted(lines, key=lambda line: int(line.get("attempt", 0))):  # of one attempt, corrections last
            if values := _values_of(line):
                index = _index(line["axis"], values, step_metrics)
                # The time is that of the step's first record, which corrections do not move.
                row = rows.setdefault((line["axis"], line["step"]), {index: line["step"], "_timestamp": line["time"]})
                row.update(values)
        yield from sorted(rows.values(), key=lambda row: float(row["_timestamp"]))

    def _params(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for row in self._lines("params"):
            found.update(row["params"])
        return found

    def _artifact_rows(self) -> Iterator[Mapping[str, Any]]:
        return (row for row in self._lines("artifact") if row["local"])

    def _lines(self, kind: str | None = None) -> Iterator[Mapping[str, Any]]:
        """Return the records that are complete in the file, all or of one kind."""
        return (row for row in record_lines(self._file) if kind is None or row.get("type") == kind)


def _values_of(line: Mapping[str, Any]) -> dict[str, Any]:
    """Return the numbers or the text of a record that has a step; of others nothing."""
    if line.get("type") == "text" and line.get("step") is not None:
        return {line["name"]: line["text"]}
    # A row of values is the one record without a type.
    if "type" in line or not isinstance(line.get("values"), dict):
        return {}
    return {name: float(value) for name, value in line["values"].items() if not is_own(name)}


def _index(axis: str, names: Mapping[str, Any], step_metrics: Sequence[Sequence[str]]) -> str:
    """Return what the steps of an axis are called in a row: `_step`, or what `define_metric(step_metric=)` said."""
    if axis == DEFAULT_AXIS:
        return "_step"
    said = (metric for pattern, metric in step_metrics for name in names if matches_beginning(name, pattern))
    return next(said, axis)


def _expression(pattern: str) -> re.Pattern[str]:
    """Return what a pattern of SQL asks for."""
    return re.compile("".join({"%": ".*", "_": "."}.get(sign, re.escape(sign)) for sign in pattern), re.DOTALL)


def _is_saved(row: Mapping[str, Any]) -> bool:
    return bool(row["artifact_type"] == _SAVED)


def _path_in_run(row: Mapping[str, Any]) -> str:
    return text_of(row["name"])


def _stored(row: Mapping[str, Any], name: str) -> StoredFile:
    return StoredFile(name, row["size"], row["uri"], row["local"])
