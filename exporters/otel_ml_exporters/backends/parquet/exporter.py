"""The `parquet` exporter: batches of closed steps become files, many small files become a large one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from otel_ml.exceptions import ConfigError
from otel_ml_exporters.backends.parquet.parts import Parts
from otel_ml_exporters.backends.parquet.rows import load_pyarrow, merge_tables, table_of, write_table
from otel_ml_exporters.errors import on_disk
from otel_ml_exporters.exporter import Exporter, every_problems, require_started
from otel_ml_exporters.records import Record, RunInfo, RunStatus, StepRecord

__all__ = ["ParquetExporter"]

_MERGED_AT = 64
"""So many parts become one: a day of a file each 10 s is 135 files instead of 8,640."""

_WIDE = 4096
"""Records in a part that is not merged again: as many as a full batch has."""


class ParquetExporter(Exporter):
    """Writes `<run dir>/parquet/part-<first seq>-<last seq>.parquet`: one row for each scalar of a closed step.

    The columns are `seq`, `role`, `axis`, `step`, `attempt`, `time`, `name`, `value` and `amendment`. A file gets its
    name when it is complete, and is never changed. 64 files become one; for a moment its rows are then in two files,
    with the same `seq`.

    **Guarantee**: exactly once, after a kill too: the names of the files say up to which `seq` they go, and an
    unfinished one is removed. Scalars only: what is not a number at a step is not stored.
    **Ordering**: by `seq`. A correction is a row with `amendment` true; the row with the largest `seq` holds.
    **Non-finite values**: NaN and ±Inf, as doubles; nothing is ever null.
    **Names**: as published, which is as they were written.
    """

    keeps_self_telemetry = True
    max_batch = 4096
    max_delay = 10.0

    def __init__(self, *, every: int = 1) -> None:
        if problems := every_problems("parquet", every):
            raise ConfigError(*problems)
        self.every = every
        self._folder: Path | None = None
        self._parts: Parts | None = None
        self._closed = False

    @property
    def url(self) -> str | None:
        """The folder of the files."""
        return None if self._folder is None else str(self._folder)

    def start(self, run: RunInfo) -> None:
        """Find the files that are there.

        Raises:
            MissingDependencyError: pyarrow is not installed.
            RetryableExportError: the folder cannot be written to.
        """
        load_pyarrow()
        self._folder = run.folder("parquet")
        self._parts = Parts(self._folder)
        with on_disk(self._folder):
            self._parts.open()

    def position(self) -> int | None:
        """Return the `seq` of the last row; records after it that have no rows come again, and change nothing."""
        return self._parts.last_seq if self._parts else None

    @property
    def is_intact(self) -> bool:
        """Whether the folder has the newest file."""
        return self._parts is None or self._parts.is_intact

    def export(self, records: Sequence[Record]) -> None:
        """Write one file."""
        parts = require_started("parquet", self._parts, is_closed=self._closed)
        # What has no row moves no position: it comes again after a start, and is left out again.
        steps = [record for record in records if isinstance(record, StepRecord) and record.seq > parts.last_seq]
        if not any(step.values for step in steps):
            return
        # Made before the disk is touched: what is wrong with a record is not told as a fault of the folder.
        write = partial(write_table, table_of(steps))
        with on_disk(self._folder):
            parts.add(steps[0].seq, steps[-1].seq, write)
        if len(parts.unmerged(_WIDE)) >= _MERGED_AT:
            self._merge(parts)

    def shutdown(self, timeout: float, status: RunStatus | None) -> None:
        """Merge the small files of a run that has ended; every earlier call of `export` has written its rows."""
        if self._closed:
            return
        self._closed = True
        if self._parts is not None and status is not None:
            self._merge(self._parts)

    def _merge(self, parts: Parts) -> None:
        narrow = [part for part in parts.unmerged(_WIDE) if part.path.exists()]  # somebody may have removed some
        if len(narrow) > 1:
            write = partial(write_table, merge_tables([part.path for part in narrow]))
            with on_disk(self._folder):
                parts.merge(narrow, write)
