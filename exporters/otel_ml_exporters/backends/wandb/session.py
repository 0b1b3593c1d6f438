"""One open run in W&B: which record goes where."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from otel_ml.wire.attributes import HIDDEN_SUMMARIES_PARAM, STEP_METRICS_PARAM, TIME_AXIS
from otel_ml.wire.summary_texts import summary_texts
from otel_ml_exporters.backends.wandb.changed_names import ChangedNames
from otel_ml_exporters.backends.wandb.media import artifact, media
from otel_ml_exporters.backends.wandb.names import media_key, param_key, row_key, row_keys, table_limit
from otel_ml_exporters.backends.wandb.rows import (
    AMENDMENT,
    ATTEMPT,
    axis_key,
    fitting,
    plain,
    step_row,
    step_values,
)
from otel_ml_exporters.backends.wandb.step_metrics import StepMetrics
from otel_ml_exporters.errors import PermanentExportError
from otel_ml_exporters.records import (
    Artifact,
    Audio,
    HistogramValue,
    Image,
    JsonValue,
    Params,
    Record,
    StepRecord,
    Summary,
    Table,
    Text,
)

__all__ = ["NAMES", "Session"]

_WINDOWS = axis_key(TIME_AXIS)
_OF_DEFINITIONS = frozenset({STEP_METRICS_PARAM, HIDDEN_SUMMARIES_PARAM})
NAMES = "otel_ml/names"
"""Entry of the config: `{"key in W&B": "name as it was recorded"}`, of those that differ."""


class Session:
    """Hands records to an open run; what W&B raises is not translated here.

    Args:
        run: `wandb.Run`.
        position: `seq` of the last row that is stored already.
        names: most metrics of the run; W&B becomes slow for a whole project beyond 10,000.
        step_metrics: what a script has said of what metrics are drawn over, and of their summaries.
        changed_names: name → key, of those that W&B does not take as they are.

    Attributes:
        done: `seq` of the last record handed over.
        last_row: `_step` of the last row handed over.
    """

    def __init__(
        self, run: Any, position: int, names: int, step_metrics: StepMetrics, changed_names: ChangedNames
    ) -> None:
        self._run = run
        self._changed_names = changed_names
        self._step_metrics = step_metrics
        self._names = names
        self.done = position
        self.last_row = 0
        self._axes: set[str] = set()
        self._drawn_over: dict[str, str] = {}
        self._hidden: frozenset[str] = frozenset()
        self._metrics: set[str] = set()
        self._last_artifact: tuple[str, int | None] | None = None
        self._handlers: Mapping[type, Callable[[Any], None]] = {
            StepRecord: self._log_step,
            Params: self._log_params,
            Summary: self._log_summary,
            Text: self._log_media,
            Table: self._log_media,
            Image: self._log_media,
            Audio: self._log_media,
            HistogramValue: self._log_media,
        }
        # W&B draws a chart of each metric that is not hidden; what is said about a row is none of the user's.
        for key in (ATTEMPT, AMENDMENT):
            run.define_metric(key, hidden=True)

    @property
    def mapped(self) -> Mapping[str, str]:
        """Name → key, of those that W&B does not take as they are."""
        return self._changed_names.mapped

    def write(self, records: Sequence[Record]) -> None:
        """Hand over those of `records` that were not yet."""
        new = [record for record in records if record.seq > self.done]
        for record in new:  # first: what a request brings of parameters comes after its steps
            if isinstance(record, Params) and self._step_metrics.learn(record.params):
                self._hide_again()
        # `groupby` puts together only neighbors: files of one name that come one after the other.
        for name, together in groupby(new, key=_artifact_key):
            group = list(together)
            if name is None:
                self._write_each(group)
            else:
                self._log_artifact(name, [record for record in group if isinstance(record, Artifact)])
                # Only now: files of a name are logged together, or come again together.
                self.done = group[-1].seq

    def _write_each(self, records: Iterable[Record]) -> None:
        for record in records:
            handler = self._handlers.get(type(record))
            if handler is not None:
                handler(record)
            self.done = record.seq

    def _log_step(self, record: StepRecord) -> None:
        values = step_values(record)
        known = len(self._metrics)
        surplus = self._admit(values)
        # Nearly all rows have no new name, and then none is compared with its key.
        if len(self._metrics) > known:
            self._note(zip(record.values, values, strict=True))
        for key in surplus:
            del values[key]
        drawn = self._step_metrics.drawn(record.axis, values)
        self._draw(drawn)
        # What a script said of a metric comes first; the others are drawn over the row's axis.
        self._bind(record.axis, values.keys() - drawn.keys() if drawn else values)
        beside = {over: record.step for over in drawn.values() if over not in values}
        row, left_out = fitting({**step_row(record, values), **beside})
        self._log_row(row, record.seq)
        if left_out:  # without names: by these the pipeline would take them from the other rows of the batch, too
            raise PermanentExportError(
                f"W&B: {left_out} of {len(record.values)} values of {record.axis} {record.step} do not fit into a row; "
                "its limit is 10 MB."
            )
        if surplus:
            self.done = record.seq  # its row is there: when it comes again, without these values, nothing is missing
            names = {key: name for name, key in zip(record.values, row_keys(record.values), strict=True)}
            raise PermanentExportError(
                f"W&B: the run has {self._names:,} metrics (option `names`); values of further ones are not written "
                "there, the other exporters have them. Is a step or an id part of a metric's name or attributes?",
                names=[names[key] for key in surplus],
            )

    def _admit(self, keys: Iterable[str]) -> Sequence[str]:
        """Make metrics of the run of those of `keys` that are new; return those for which there is no room."""
        new = [key for key in keys if key not in self._metrics]
        space = max(0, self._names - len(self._metrics))
        self._metrics.update(new[:space])
        return new[space:]

    def _log_media(self, record: Text | Table | Image | Audio | HistogramValue) -> None:
        with tempfile.TemporaryDirectory(prefix="otel-ml-") as folder:
            limits = [table_limit(self._run.id)] if isinstance(record, Table) else []
            key = media_key(record.name, *limits)
            self._note([(record.name, key)])
            # The files of the value are in the folder, which is there until the row is logged.
            row = {key: media(record, Path(folder)), "_timestamp": record.time}
            if record.step is not None:
                self._bind(record.axis, ())
                row[axis_key(record.axis)] = record.step
            self._log_row(row, record.seq)

    def _note(self, keys: Iterable[tuple[str, str]]) -> None:
        """Keep what was not called by its name, here and in the run's config."""
        if self._changed_names.learn(keys):
            names = {key: name for name, key in self.mapped.items()}
            self._run.config.update({NAMES: names}, allow_val_change=True)

    def _log_row(self, row: Mapping[str, Any], seq: int) -> None:
        self._run.log(row, step=seq, commit=True)
        self.last_row = seq

    def _log_params(self, record: Params) -> None:
        shown = {param_key(key): value for key, value in record.params.items() if key not in _OF_DEFINITIONS}
        self._run.config.update(plain(shown), allow_val_change=True)
        self._put_into_summary(summary_texts(record.params))
        _publish_overview(self._run, record.params)

    def _log_summary(self, record: Summary) -> None:
        self._put_into_summary(record.values)

    def _put_into_summary(self, values: Mapping[str, JsonValue]) -> None:
        self._note((name, row_key(name)) for name in values)
        self._run.summary.update(plain({row_key(key): value for key, value in values.items()}))

    def _log_artifact(self, name: tuple[str, int | None], files: Sequence[Artifact]) -> None:
        """Log all files of a name together; what comes for it in a later batch joins the same version."""
        made = artifact(files, continued=name == self._last_artifact)
        aliases = dict.fromkeys(_alias(alias) for file in files for alias in file.aliases)
        self._run.log_artifact(made, aliases=list(aliases) or None)
        self._last_artifact = name

    def _bind(self, axis: str, keys: Iterable[str]) -> None:
        """Say once for each metric what it is drawn over.

        What was recorded before the first step, in windows of the axis `time`, is drawn over steps once it has some.
        Not by glob: `*` would also bind what lives on another axis. Without `step_sync=False` the service would write
        a 0 for an axis that a row does not have.
        """
        index = axis_key(axis)
        if index not in self._axes:
            self._axes.add(index)
            self._run.define_metric(index, hidden=True)
        for key in keys:
            before = self._drawn_over.get(key)
            if before is None or (before == _WINDOWS and index != _WINDOWS):
                self._draw({key: index})

    def _draw(self, over: Mapping[str, str]) -> None:
        for key, index in over.items():
            if self._drawn_over.get(key) != index:
                self._drawn_over[key] = index
                self._define(key)

    def _define(self, key: str) -> None:
        is_hidden = self._step_metrics.hides(key)
        # Of a metric that had no summary W&B has one again only where its definition begins anew.
        summary = {"summary": "none"} if is_hidden else {"overwrite": True} if key in self._hidden else {}
        self._hidden = self._hidden | {key} if is_hidden else self._hidden - {key}
        self._run.define_metric(key, step_metric=self._drawn_over[key], step_sync=False, **summary)

    def _hide_again(self) -> None:
        """Define metrics anew of which a script has said later that they have no summary, or have one."""
        for key in self._drawn_over:
            if self._step_metrics.hides(key) != (key in self._hidden):
                self._define(key)


def _artifact_key(record: Record) -> tuple[str, int | None] | None:
    return (record.name, record.step) if isinstance(record, Artifact) else None


def _alias(alias: str) -> str:
    """W&B refuses these two in an alias."""
    return alias.replace("/", "-").replace(":", "-")


def _publish_overview(run: Any, params: Mapping[str, JsonValue]) -> None:
    """Tell W&B what the worker captured (`OTEL_ML_CAPTURE`): its own look would find the service.

    W&B has no public call for it; where a version has none of this name either, the config has the same.

    Args:
        run: `wandb.Run`.
        params: as they came.
    """
    facts = params.get("otel_ml")
    if not isinstance(facts, Mapping) or not isinstance(facts.get("program"), str):
        return
    with contextlib.suppress(AttributeError, ImportError, TypeError, ValueError):
        from wandb.proto import wandb_internal_pb2

        environment = wandb_internal_pb2.EnvironmentRecord(**_fields(facts))
        run._interface.publish_environment(environment)  # noqa: SLF001 (the only way there is)


def _fields(facts: Mapping[str, JsonValue]) -> dict[str, Any]:
    git = facts.get("git")
    of_git = git if isinstance(git, Mapping) else {}
    found: dict[str, Any] = {
        "program": facts.get("program"),
        "code_path": facts.get("program"),
        "args": facts.get("arguments"),
        "executable": facts.get("executable"),
        "python": facts.get("python"),
        "os": facts.get("os"),
        "host": facts.get("host"),
        "username": facts.get("user"),
        "root": facts.get("working_directory"),
        "git": {"remote_url": of_git.get("remote", ""), "commit": of_git.get("commit", "")} if of_git else None,
    }
    # What was not captured is left out: an empty text would be shown as if it were the answer.
    return {key: value for key, value in found.items() if value}
