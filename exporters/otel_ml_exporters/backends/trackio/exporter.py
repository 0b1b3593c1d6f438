"""The `trackio` exporter: one run in a project's file, one row for each closed step."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from otel_ml.exceptions import ConfigError, OtelMLError
from otel_ml_exporters.backends.trackio.rows import media_row, renamed_in, step_row, summary_row
from otel_ml_exporters.backends.trackio.storage import Row, Storage
from otel_ml_exporters.errors import PermanentExportError, RetryableExportError
from otel_ml_exporters.exporter import Exporter, every_problems, renamed, require_started
from otel_ml_exporters.records import (
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

__all__ = ["TrackioExporter"]

NAMES = "otel_ml/names"
"""Entry of the config: `{"key in Trackio": "name as it was recorded"}`, of those that differ."""

_OF_THE_RECORDS = (
    ValueError,
    TypeError,
    sqlite3.DataError,
    sqlite3.IntegrityError,
    sqlite3.InterfaceError,
    sqlite3.NotSupportedError,
    sqlite3.ProgrammingError,
)
"""What is wrong with what is written; else the file is: locked, damaged, without space."""

_MEDIA = (Text, Table, Image, Audio, HistogramValue)


class TrackioExporter(Exporter):
    """Writes `<project>.db` in `TRACKIO_DIR`, by default the folder `trackio` in `OTEL_ML_DIR`.

    The experiment is the project. A row has the step of its own axis; `otel_ml/<axis>` says which where it is not
    `step`, `otel_ml/attempt` which restart of the job. Final values are the metrics `summary/<name>`, parameters the
    run's config. Artifacts and spans are not stored.

    **Guarantee**: exactly once, after a kill too: `seq` is in each row's `log_id`, of which Trackio's file has each
    once. Files of images and sounds are written at least once, under names that a replay repeats.
    **Ordering**: by `seq`, with the record's time. A correction is a further row with `otel_ml/amendment`.
    **Non-finite values**: NaN and ±Inf, which Trackio stores as the texts "NaN", "Infinity", "-Infinity" and reads as
    numbers.
    **Names**: as published; `project`, `run`, `timestamp`, `step`, `time`, `metrics`, what begins with `__` or
    `summary/`, and what is one of these keys already, become `metric/<name>`; the config's `otel_ml/names` says what
    each was, and otel_ml reports it once. Projects with characters that Trackio drops get a replacement that ends in a
    hash.
    """

    max_delay = 0.5

    def __init__(self, *, every: int = 1) -> None:
        if problems := every_problems("trackio", every):
            raise ConfigError(*problems)
        self.every = every
        self._storage: Storage | None = None
        # As it was at the start, which is when it is asked for.
        self._position = 0
        self._mapped: dict[str, str] = {}
        self._config_due = False
        self._renamed: str | None = None
        self._closed = False

    @property
    def notice(self) -> str | None:
        """Which names Trackio does not take, when the first one has come."""
        if self._renamed is None and self._mapped:
            self._renamed = renamed("trackio", self._mapped, f"The config's {NAMES} has")
        return self._renamed

    @property
    def place(self) -> str | None:
        """One file a project, in which a run is told by its id."""
        return "trackio"

    @property
    def url(self) -> str | None:
        """The project's file; `trackio show --project <project>` opens it."""
        return None if self._storage is None else str(self._storage.path)

    def start(self, run: RunInfo) -> None:
        """Open or make the project's file; see `Exporter.start`."""
        with _translated():
            storage = Storage(run.dir.parent.parent / "trackio", run)
            self._position = storage.last_seq()
        self._storage = storage

    def position(self) -> int | None:
        """Return the `seq` of the newest row; records after it that have no row come again, and change nothing."""
        return None if self._storage is None else self._position

    @property
    def is_intact(self) -> bool:
        """Whether the project's file is the one that was written to."""
        return self._storage is None or self._storage.is_intact

    def export(self, records: Sequence[Record]) -> None:
        """Write one row for each record that has a place, in one transaction."""
        storage = require_started("trackio", self._storage, is_closed=self._closed)
        with _translated():
            rows = [row for record in records if (row := _row(record, storage)) is not None]
            self._note(records, storage)
            self._config_due |= any(isinstance(record, Params) for record in records)
            if rows:
                storage.write(rows, params=self._config_due)
                # Only now: a project that was locked has not got it, and the next try finds no name that is new.
                self._config_due = False

    def _note(self, records: Sequence[Record], storage: Storage) -> None:
        """Keep what was not called by its name; what is new of it is due to be in the config."""
        known = len(self._mapped)
        for record in records:
            self._mapped |= renamed_in(record)
        if len(self._mapped) == known:
            return
        self._config_due = True
        # What the config has already is kept: it may be of an earlier process.
        storage.params[NAMES] = {**storage.params.get(NAMES, {}), **{key: name for name, key in self._mapped.items()}}

    def shutdown(self, timeout: float, status: RunStatus | None) -> None:
        """Do nothing more: every earlier call of `export` has stored its rows, and Trackio has no status."""
        self._closed = True


def _row(record: Record, storage: Storage) -> Row | None:
    if isinstance(record, StepRecord):
        return step_row(record)
    if isinstance(record, Summary):
        return summary_row(record)
    if isinstance(record, _MEDIA):
        return media_row(record, storage)
    if isinstance(record, Params):
        storage.params.update(record.params)
        return Row(record.seq, 0, record.time, {})  # the config travels with a row
    return None


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except OtelMLError:
        raise
    except _OF_THE_RECORDS as error:
        raise PermanentExportError(f"Trackio: {type(error).__name__}: {error}") from error
    except (OSError, sqlite3.Error) as error:
        raise RetryableExportError(f"Trackio: {error}") from error
