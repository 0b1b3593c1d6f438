"""The `jsonl` exporter: `metrics.jsonl`, `spans.jsonl` and `media/` in the run's folder."""

from __future__ import annotations

import json
import mmap
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import fields
from pathlib import Path

from otel_ml.exceptions import ConfigError
from otel_ml.wire.safe_names import as_path
from otel_ml_exporters.errors import ExporterClosedError, RetryableExportError, on_disk
from otel_ml_exporters.exporter import Exporter, every_problems
from otel_ml_exporters.file_identity import OpenFile
from otel_ml_exporters.json_text import json_text
from otel_ml_exporters.metric_columns import MetricColumns
from otel_ml_exporters.records import (
    Artifact,
    Audio,
    HistogramValue,
    Image,
    Params,
    Record,
    RunInfo,
    RunStatus,
    SpanBatch,
    StepRecord,
    Summary,
    Table,
    Text,
)
from otel_ml_exporters.span_lines import SpanLines

__all__ = ["JsonlExporter"]

_TYPES: dict[type, str] = {
    Params: "params",
    Summary: "summary",
    Text: "text",
    Table: "table",
    Image: "image",
    Audio: "audio",
    HistogramValue: "histogram",
    Artifact: "artifact",
    RunStatus: "status",
}
# In a line `type` says which kind of record it is, so the type of an artifact has another key.
_KEYS = {"type": "artifact_type"}

_LIKE_A_FILE = re.compile(r"(-\d+\.(?:png|wav))/")
"""A folder that could be the file of another name."""


class JsonlExporter(Exporter):
    """Appends one JSON object a line to `<run dir>/metrics.jsonl`; as `jsonl/a`, to `<run dir>/jsonl-a/metrics.jsonl`.

    Steps are `{"seq", "role", "axis", "step", "attempt", "time", "values": {name: value}}`, with `"writers_missing"`
    where it is not 0 and `"amendment": true` where they correct an earlier line. Every other record is
    `{"seq", "type", "time", …}` with the fields of its class in `otel_ml_exporters.records`; images and sounds are
    files in `media/`, named in `"path"`. Spans are lines of `spans.jsonl`.

    Spans are written before the lines of `metrics.jsonl` and cut back to its last `seq` at start, so `metrics.jsonl`
    alone says how far one got. Where `spans.jsonl` is gone and that is not, it is written again from the first batch;
    until it is whole, a file `spans.again` beside it says so, since a kill in between would leave it so.

    `metrics.columns` holds the steps once more, for who reads one series. It is believed where it agrees, and may go.

    **Guarantee**: exactly once, after a kill too: a torn last line is cut off, and `seq` is in each line.
    **Ordering**: by `seq`; steps ascend per (attempt, role, axis) except corrections.
    **Non-finite values**: `NaN`, `Infinity`, `-Infinity`, as Python's and JavaScript's own number names.
    **Names**: as published, which is as they were written.
    """

    keeps_self_telemetry = True

    def __init__(self, *, every: int = 1) -> None:
        if problems := every_problems("jsonl", every):
            raise ConfigError(*problems)
        self.every = every
        self._dir: Path | None = None
        self._closed = False
        self._metrics = _Lines()
        self._spans = _Lines()
        self._columns: MetricColumns | None = None
        self._again_up_to: int | None = None  # `seq` with which `spans.jsonl` is whole; None where it is

    @property
    def url(self) -> str | None:
        """The path of `metrics.jsonl`."""
        return str(self._dir / "metrics.jsonl") if self._dir else None

    def start(self, run: RunInfo) -> None:
        """Open both files and cut off what a killed predecessor left torn.

        Raises:
            RetryableExportError: the folder cannot be written to.
        """
        self._dir = run.folder("jsonl") if run.instance else run.dir
        with on_disk(self._dir):
            self._metrics.open(self._dir / "metrics.jsonl")
            # Before the file is there: an empty one looks like that of a run without spans.
            if self._metrics.last_seq and not (self._dir / "spans.jsonl").exists():
                self._again.touch()
            self._spans.open(self._dir / "spans.jsonl", up_to=self._metrics.last_seq)
            self._again_up_to = self._metrics.last_seq if self._again.exists() else None
        # Not inside of `on_disk`: columns that cannot be written are no reason not to write the text.
        self._columns = MetricColumns(self._dir / "metrics.jsonl", whole=self.every == 1)

    def position(self) -> int | None:
        """Return the `seq` of the last line of `metrics.jsonl`; of `spans.jsonl` where that is written again."""
        return self._metrics.last_seq if self._again_up_to is None else self._spans.last_seq

    @property
    def _again(self) -> Path:
        assert self._dir is not None, "start() comes first"
        return self._dir / "spans.again"

    @property
    def is_intact(self) -> bool:
        """Whether both files have their names and all that was written to them."""
        return self._metrics.is_intact and self._spans.is_intact

    def export(self, records: Sequence[Record]) -> None:
        """Append one line a record."""
        if self._closed:
            raise ExporterClosedError("jsonl")
        # What to go back to where the spans are written and the other lines are not: the batch comes again, and has
        # them again.
        spans_before = self._spans.size
        # Each file has a place of its own: while `spans.jsonl` is written again, the other one has these records
        # already.
        spans = [record for record in records if isinstance(record, SpanBatch) and record.seq > self._spans.last_seq]
        others = [
            record for record in records if not isinstance(record, SpanBatch) and record.seq > self._metrics.last_seq
        ]
        try:
            # All that may fail comes before the spans: these would be there twice once the batch comes again.
            rows = [self._row(record) for record in others]
            lines = [json_text(row, default=dict) + b"\n" for row in rows]
            span_lines, metric_lines = b"".join(map(_spans, spans)), b"".join(lines)
            self._spans.write(span_lines)
            self._metrics.write(metric_lines)
        except OSError as error:
            with suppress(OSError):  # the next write does it
                self._spans.cut(spans_before)
            raise RetryableExportError(f"{self._dir} cannot be written to: {error}.") from error
        if spans:
            self._spans.last_seq = spans[-1].seq
        if others:
            self._metrics.last_seq = others[-1].seq
        # Behind the text, of which the columns are a copy that is believed only as far as the text goes.
        if self._columns is not None:
            self._columns.add(zip(rows, lines, strict=True))
        if self._again_up_to is not None and records[-1].seq >= self._again_up_to:
            with suppress(OSError):  # then what the files have comes once more after a start, and is left out
                self._again.unlink(missing_ok=True)
                self._again_up_to = None

    def force_flush(self, timeout: float) -> None:
        """Wait until the disk has everything; the operating system has it already."""
        self._metrics.sync()
        self._spans.sync()

    def shutdown(self, timeout: float, status: RunStatus | None) -> None:
        """Close the files."""
        self._closed = True
        if self._columns is not None:
            self._columns.close()
        self._metrics.close()
        self._spans.close()

    def _row(self, record: Record) -> dict[str, object]:
        if isinstance(record, StepRecord):
            return _step_row(record)
        row: dict[str, object] = {"seq": record.seq, "type": _TYPES[type(record)]}
        # `seq` is a field of each record, too, and is written over with itself.
        row.update((_KEYS.get(field.name, field.name), getattr(record, field.name)) for field in fields(record))
        if isinstance(record, Image):
            row["path"] = self._media(record.name, record.seq, "png", record.png)
            del row["png"]
        elif isinstance(record, Audio):
            row["path"] = self._media(record.name, record.seq, "wav", record.wav)
            del row["wav"]
        elif isinstance(record, Artifact):
            row["local"] = None if record.local is None else str(record.local)
        return row

    def _media(self, name: str, seq: int, suffix: str, content: bytes) -> str:
        """Write a file whose name is the same in a replay; return its path in the run's folder."""
        assert self._dir is not None, "start() comes first"
        # An image `a` of seq 3 is the file `a-3.png`, and the name `a-3.png/b` would need a folder of that name beside
        # it.
        folders = _LIKE_A_FILE.sub(r"\1_/", as_path(name))
        path = Path("media", f"{folders}-{seq}.{suffix}")
        (self._dir / path).parent.mkdir(mode=0o775, parents=True, exist_ok=True)
        (self._dir / path).write_bytes(content)
        return path.as_posix()


def _step_row(record: StepRecord) -> dict[str, object]:
    row: dict[str, object] = {
        "seq": record.seq,
        "role": record.role,
        "axis": record.axis,
        "step": record.step,
        "attempt": record.attempt,
        "time": record.time,
        "values": record.values if type(record.values) is dict else dict(record.values),
    }
    # Left out where it says nothing: most lines are of a step as it should be.
    if record.writers_missing:
        row["writers_missing"] = record.writers_missing
    if record.amendment:
        row["amendment"] = True
    return row


def _spans(batch: SpanBatch) -> bytes:
    return SpanLines.of(batch.spans).written(f'{{"seq":{batch.seq},').encode() + b"\n"


class _Lines(OpenFile):
    """A file of JSON lines."""

    def __init__(self) -> None:
        super().__init__(Path())
        self.last_seq = 0

    def open(self, path: Path, up_to: int | None = None) -> None:
        """Open the file and drop, from its end, what is torn or has a `seq` above `up_to`."""
        self._path = path
        self.last_seq, size = _last_line(self._open(), up_to)
        self.cut(size)


def _last_line(file: int, up_to: int | None) -> tuple[int, int]:
    """Return `seq` of the last whole line not above `up_to`, and where it ends."""
    size = os.fstat(file).st_size
    # An empty file cannot be mapped.
    if not size:
        return 0, 0
    with mmap.mmap(file, size, access=mmap.ACCESS_READ) as data:
        # What follows the last line end is torn.
        end = data.rfind(b"\n") + 1
        while end:
            begin = data.rfind(b"\n", 0, end - 1) + 1
            seq = _seq(data[begin:end])
            if seq is not None and (up_to is None or seq <= up_to):
                return seq, end
            end = begin
    return 0, 0


def _seq(line: bytes) -> int | None:
    """Return the line's `seq`, or None where a power cut, or somebody else, left another thing."""
    try:
        row = json.loads(line)
    except ValueError:
        return None
    seq = row.get("seq") if isinstance(row, dict) else None
    # Not `isinstance`: `true` is an int of Python.
    return seq if type(seq) is int else None
