"""The records of a run in batches as an exporter wants them: not too many, and not too few too soon."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from otel_ml_exporters.exporter import Exporter
from otel_ml_exporters.records import Record, RunStatus
from otel_ml_service.delivery.exporter_progress import Progress
from otel_ml_service.delivery.retries import Retries
from otel_ml_service.delivery.stop_signal import StopSignal

__all__ = ["Batches", "RecordSource"]

_NO_LONGER_KEPT = "its place was lost: the disk limit was reached"


class RecordSource(Protocol):
    """Where records come from, and where an exporter's position is kept."""

    @property
    def last_seq(self) -> int:
        """The newest record's `seq`."""

    @property
    def first_seq(self) -> int:
        """The oldest record's that is still there."""

    def read(self, after: int, limit: int) -> Sequence[Record]:
        """Return up to `limit` records with `seq > after`."""

    def subscribe(self, name: str, listener: Callable[[], None]) -> None:
        """Call `listener` when there are new records, instead of the one that had this name before."""


class Batches:
    """Read by the thread of one exporter, from where it is.

    Args:
        name: of the exporter.
        say: called with a slug of the catalogue and a sentence for a person.
    """

    def __init__(
        self,
        name: str,
        source: RecordSource,
        progress: Progress,
        retries: Retries,
        stop: StopSignal,
        say: Callable[[str, str], None],
    ) -> None:
        self._name = name
        self._source = source
        self._progress = progress
        self._retries = retries
        self._stop = stop
        self._say = say

    def next(self, exporter: Exporter) -> Sequence[Record]:
        """Return what follows: at most `max_batch` records, which may take `max_delay` to come; empty for none."""
        records = self._read(exporter)
        if not self._wants_more(records, exporter):
            return records
        until = self._stop.clock() + exporter.max_delay
        while self._wants_more(records, exporter):
            left = until - self._stop.clock()
            if left <= 0:
                break
            self._stop.wake.wait(left)
            # Before the read, as in the pipeline: what is committed from here on sets it again.
            self._stop.wake.clear()
            records = self._read(exporter)
        return records

    def _wants_more(self, records: Sequence[Record], exporter: Exporter) -> bool:
        if not records or len(records) >= exporter.max_batch or _is_the_end(records[-1]):
            return False
        return exporter.max_delay > 0 and not self._stop.is_stopping

    def _read(self, exporter: Exporter) -> Sequence[Record]:
        has_failed = False
        while True:
            try:
                records = self._source.read(self._progress.status.delivered, exporter.max_batch)
            except Exception as error:  # noqa: BLE001 (a disk that fails: said, and tried again)
                has_failed = True
                self._retries.wait_after(error)
            else:
                if has_failed:  # there may be nothing to export, whose success would say so
                    self._retries.succeeded()
                self._note_gap(records)
                return records

    def _note_gap(self, records: Sequence[Record]) -> None:
        """Count what was no longer kept when `records` were read; what has gone since then is in hand."""
        # Read after the records: the engine may delete old ones at any time, also between the two.
        first = self._source.first_seq
        if records:
            first = min(first, records[0].seq)
        gone = first - 1 - self._progress.status.delivered
        if gone > 0 and self._source.last_seq:
            self._progress.lose(first - 1, _NO_LONGER_KEPT, gone)
            self._say("disk-limit", f"Exporter {self._name!r} lost its place: {gone} records are no longer kept.")
            self._progress.advance(first - 1)


def _is_the_end(record: Record) -> bool:
    """Whether nothing comes after it, unless the run is opened again."""
    return isinstance(record, RunStatus) and record.status != "running"
