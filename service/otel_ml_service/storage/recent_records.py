"""The newest records of a run, kept in memory for exporters that keep up."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import islice

from otel_ml_exporters.records import Record
from otel_ml_service.storage.record_codec import Row, nbytes

__all__ = ["RecentRecords"]

MAX_BYTES = 8 * 2**20
"""Of the records, as text: half an hour of an ordinary run, in three times as much as objects. 1,024 ranks bring 5 MB
of spans a second: where 2 MiB were kept, every exporter read them from the disk."""


class RecentRecords:
    """Exporters that keep up never touch the disk: they would decode on their threads what the engine has just encoded.

    The outbox's lock guards it.

    Attributes:
        size: bytes of what is kept, as text.
    """

    def __init__(self) -> None:
        self._records: deque[tuple[Record, int]] = deque()
        self.size = 0

    def add(self, records: Sequence[Record], rows: Sequence[Row]) -> None:
        """Keep records, which are stored as these rows, and the newest before them as far as there is room."""
        for record, row in zip(records, rows, strict=True):
            size = nbytes(record, row)
            self._records.append((record, size))
            self.size += size
        while self.size > MAX_BYTES:
            self.size -= self._records.popleft()[1]

    def after(self, seq: int, limit: int) -> list[Record] | None:
        """Return up to `limit` records after this `seq`; None where the next one is not kept."""
        if not self._records or self._records[0][0].seq > seq + 1:
            return None
        # `seq` ascends without gaps, so a difference is a place.
        start = seq + 1 - self._records[0][0].seq
        return [record for record, _ in islice(self._records, start, start + limit)]

    def forget(self, up_to: int) -> None:
        """Let go of records up to this `seq`."""
        while self._records and self._records[0][0].seq <= up_to:
            self.size -= self._records.popleft()[1]
