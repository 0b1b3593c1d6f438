"""One open run in MLflow: which record goes where."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from otel_ml_exporters.backends.mlflow.artifacts import Files
from otel_ml_exporters.backends.mlflow.names import PARAM_NAMES, Names
from otel_ml_exporters.backends.mlflow.params import reconciled
from otel_ml_exporters.backends.mlflow.points import Points
from otel_ml_exporters.backends.mlflow.tags import source_tags, tags_among
from otel_ml_exporters.backends.mlflow.tracking import OpenRun, description
from otel_ml_exporters.records import (
    Artifact,
    Audio,
    HistogramValue,
    Image,
    Params,
    Record,
    RunInfo,
    RunStatus,
    StepRecord,
    Summary,
    Table,
    Text,
)

__all__ = ["Session"]

_PARAM_CONFLICTS = "otel_ml.param_conflicts"
_MAX_TAG_VALUE = 8000
_RUN_NAME = "mlflow.runName"


class Session:
    """Writes records into an open run; what MLflow raises is not translated here."""

    def __init__(self, opened: OpenRun) -> None:
        self._client = opened.client
        self._run_id = opened.run_id
        self._points = Points(
            opened.client, opened.run_id, opened.tags, opened.metric_names, is_of_files=opened.is_of_files
        )
        self._params = dict(opened.params)
        self._param_names = Names(opened.tags, opened.params, is_of_files=opened.is_of_files, tag=PARAM_NAMES)
        self._tags = dict(opened.tags)
        self._name: str | None = None
        self._conflicts = opened.tags.get(_PARAM_CONFLICTS, "").splitlines()
        files = Files(opened.client, opened.run_id, opened.tags)
        # Points alone are collected until the end of a batch. The others are sent at once: they change nothing where a
        # batch comes again.
        self._handlers: Mapping[type, Callable[[Any], None]] = {
            StepRecord: self._points.add_step,
            Summary: self._points.add_summary,
            Params: self._log_params,
            RunStatus: self.set_status,
            Text: files.text,
            Table: files.table,
            Image: files.image,
            Audio: files.audio,
            HistogramValue: files.histogram,
            Artifact: files.artifact,
        }

    @property
    def stored(self) -> int:
        """The `seq` up to which MLflow holds everything."""
        return self._points.stored

    @property
    def mapped(self) -> Mapping[str, str]:
        """Name → key, of metrics and parameters that MLflow does not take as they are."""
        return {**self._points.mapped, **self._param_names.mapped}

    def write(self, records: Sequence[Record]) -> None:
        """Write those of `records` that are not stored yet."""
        new = [record for record in records if record.seq > self.stored]
        if not new:
            return
        # What an attempt that failed has left there comes again now.
        self._points.reset()
        for record in new:
            handler = self._handlers.get(type(record))
            if handler is not None:
                handler(record)
        self._points.send(new[-1].seq)

    def describe(self, run: RunInfo) -> None:
        """Add tags that are new, and set name and notes where they are others than before."""
        from mlflow.entities import RunTag

        new = description(run, self._tags)
        if self._name not in {None, run.name}:  # else somebody may have given it another one in MLflow
            new |= {_RUN_NAME: run.name}
        self._name = run.name
        if new:
            tags = [RunTag(key, value) for key, value in new.items()]
            self._client.log_batch(self._run_id, tags=tags, synchronous=True)
            self._tags |= new

    def set_status(self, record: RunStatus) -> None:
        """Set RUNNING, FINISHED, FAILED or KILLED."""
        if record.status == "running":
            self._client.update_run(self._run_id, status="RUNNING")
        else:
            self._client.set_terminated(self._run_id, record.status.upper(), round(record.time * 1000))

    def _log_params(self, record: Params) -> None:
        from mlflow.entities import Param, RunTag

        added, conflicts = reconciled(record.params, self._params, self._param_names.key)
        params = [Param(key, value) for key, value in added.items()]
        # What is there already stays: somebody may have set it, and a restart may be of other code.
        source = {key: value for key, value in source_tags(record.params).items() if key not in self._tags}
        given = tags_among(record.params)
        tags = [RunTag(key, value) for key, value in {**self._param_names.unwritten, **source, **given}.items()]
        self._client.log_batch(self._run_id, params=params, tags=tags, synchronous=True)
        self._param_names.mark_written()
        self._params.update(added)
        self._tags |= source | given
        unwritten = [line for line in conflicts if line not in self._conflicts]
        if unwritten:
            self._conflicts.extend(unwritten)
            self._client.set_tag(self._run_id, _PARAM_CONFLICTS, "\n".join(self._conflicts)[:_MAX_TAG_VALUE])
