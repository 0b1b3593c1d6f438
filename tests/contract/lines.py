"""An exporter that keeps the contract, and one for each way not to."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO

from otel_ml_exporters import Exporter, ExporterClosedError, RunInfo, RunStatus, StepRecord
from otel_ml_exporters.contract import Point
from otel_ml_exporters.errors import PermanentExportError
from otel_ml_exporters.records import Record, Text

__all__ = ["Lines", "points_of"]


class Lines(Exporter):
    """Appends what a row holds to `lines.jsonl`, value by value."""

    file: TextIO | None = None

    def start(self, run: RunInfo) -> None:
        self.file = (run.dir / "lines.jsonl").open("a", encoding="utf-8")

    def export(self, records: Sequence[Record]) -> None:
        if self.file is None:
            raise ExporterClosedError("lines")
        for record in records:
            if isinstance(record, StepRecord):
                self.write(record)

    def write(self, record: StepRecord) -> None:
        assert self.file is not None
        for name, value in record.values.items():
            self.file.write(json.dumps([name, record.axis, record.step, value]) + "\n")

    def force_flush(self, timeout: float) -> None:
        if self.file is not None:
            self.file.flush()

    def shutdown(self, timeout: float, status: RunStatus | None) -> None:
        if self.file is not None:
            self.file.close()
            self.file = None


def points_of(run: RunInfo) -> Iterator[Point]:
    """Return what `Lines` has stored."""
    path = run.dir / "lines.jsonl"
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        name, axis, step, value = json.loads(line)
        yield name, axis, step, value


class Turned(Lines):
    """Stores a batch the other way round."""

    def export(self, records: Sequence[Record]) -> None:
        super().export(records[::-1])


class Rounding(Lines):
    """Stores three digits."""

    def write(self, record: StepRecord) -> None:
        values = {name: round(value, 3) for name, value in record.values.items()}
        super().write(StepRecord(record.seq, record.role, record.axis, record.step, 0, record.time, values))


class FirstBatchAlone(Lines):
    """Forgets whatever is exported after the first batch."""

    def export(self, records: Sequence[Record]) -> None:
        if not getattr(self, "has_exported", False):
            super().export(records)
        self.has_exported = True


class Whole(Lines):
    """Leaves out a row with a value that is not finite, with all its values."""

    def write(self, record: StepRecord) -> None:
        if all(value - value == 0 for value in record.values.values()):
            super().write(record)


class RowsAlone(Lines):
    """Leaves out a batch with a record that it knows nothing of."""

    def export(self, records: Sequence[Record]) -> None:
        if not any(isinstance(record, Text) for record in records):
            super().export(records)


class OfLastBatch(Lines):
    """Keeps nothing but the last batch."""

    def export(self, records: Sequence[Record]) -> None:
        if self.file is not None and any(isinstance(record, StepRecord) for record in records):
            self.file.truncate(0)
        super().export(records)


class Changing(Lines):
    """Changes what it is given."""

    def export(self, records: Sequence[Record]) -> None:
        super().export(records)
        for record in records:
            if isinstance(record, StepRecord):
                values: Any = record.values
                values.pop("loss")


class AnotherPosition(Lines):
    """Says that it has stored less than it has."""

    def position(self) -> int | None:
        return 19


class Beginning(Lines):
    """Begins anew with each life."""

    def start(self, run: RunInfo) -> None:
        (run.dir / "lines.jsonl").unlink(missing_ok=True)
        super().start(run)


class OfFirstAttempt(Lines):
    """Takes no step again."""

    def write(self, record: StepRecord) -> None:
        if record.attempt == 0:
            super().write(record)


class WithoutCorrections(Lines):
    """Stores no corrections."""

    def write(self, record: StepRecord) -> None:
        if not record.amendment:
            super().write(record)


class CorrectionsErase(Lines):
    """Keeps nothing that came before a correction."""

    def write(self, record: StepRecord) -> None:
        if record.amendment and self.file is not None:
            self.file.truncate(0)
        super().write(record)


class EveryHundredth(Lines):
    """Thins by itself, and not as it is told."""

    def write(self, record: StepRecord) -> None:
        if record.step % 20 == 0:
            super().write(record)


class OnceClosed(Lines):
    """Cannot be closed twice."""

    is_closed = False

    def shutdown(self, timeout: float, status: RunStatus | None) -> None:
        assert not self.is_closed
        self.is_closed = True
        super().shutdown(timeout, status)


class OnceStarted(Lines):
    """Can be closed only where it was started."""

    has_started = False

    def start(self, run: RunInfo) -> None:
        self.has_started = True
        super().start(run)

    def shutdown(self, timeout: float, status: RunStatus | None) -> None:
        assert self.has_started
        super().shutdown(timeout, status)


class Reopening(Lines):
    """Takes records after it was closed, and loses them."""

    def export(self, records: Sequence[Record]) -> None:
        if self.file is not None:
            super().export(records)


class Refusing(Lines):
    """Takes no row beyond the tenth: they are lost."""

    def export(self, records: Sequence[Record]) -> None:
        if records[-1].seq > 10:
            raise PermanentExportError("too many rows")
        super().export(records)


class NotStarting(Lines):
    """Cannot be started."""

    def start(self, run: RunInfo) -> None:
        raise OSError("no such host")


class PositionOfItsFile(Lines):
    """Says how many lines its file has, which it opens when it is started."""

    def position(self) -> int | None:
        assert self.file is not None
        return Path(self.file.name).read_bytes().count(b"\n")
