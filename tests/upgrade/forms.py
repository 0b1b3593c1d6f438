"""What is stored, described: `python -m tests.upgrade.forms` writes the description of each version that has none yet.

A description is never written over: who changes a form raises its version, and adds a step from the one before
(`docs/adr/0030-stored-forms.md`).
"""

from __future__ import annotations

import json
import sqlite3
import tempfile
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from otel_ml._internal.transport.spool_segments import FileSegment
from otel_ml.wire.rendezvous import Rendezvous, Service
from otel_ml.wire.spool_format import Frame, encode_frame
from otel_ml.wire.versions import RENDEZVOUS, SPOOL, own_version
from otel_ml_exporters import records
from otel_ml_service.aggregation import state_entries
from otel_ml_service.aggregation.engine import Engine
from otel_ml_service.aggregation.parameters import Owner
from otel_ml_service.aggregation.points import ExplicitBuckets
from otel_ml_service.aggregation.settings import EngineSettings
from otel_ml_service.aggregation.step_streams import Tally
from otel_ml_service.aggregation.stream_table import Latest, Meter
from otel_ml_service.aggregation.writer_progress import Progress
from otel_ml_service.findings.finding import Finding
from otel_ml_service.live_runs.served_settings import ServedSettings
from otel_ml_service.receiver.decode import Decoder
from otel_ml_service.storage.journal import Entry, Journal
from otel_ml_service.storage.journal_files import JournalFiles
from otel_ml_service.storage.outbox import Outbox
from otel_ml_service.storage.record_codec import encode
from otel_ml_service.versions import JOURNAL, RUN, SERVED
from tests.upgrade import job

__all__ = ["DESCRIBED", "FORMS", "VERSIONS"]

FORMS = Path(__file__).with_name("forms")

VERSIONS = {"run.db": RUN, "journal.db": JOURNAL, "spool": SPOOL, "rendezvous": RENDEZVOUS, "served.json": SERVED}

NAMED = {
    "writer": state_entries.WRITER_FIELDS,
    "where a writer stands": state_entries._PLAIN_WRITER,
    "goodbye": state_entries._SHUTDOWN_FIELDS,
    "progress": Progress.__slots__,
    "tally": tuple(field.name for field in fields(Tally)),
    "finding": tuple(field.name for field in fields(Finding)),
    "owner of a parameter": Owner._fields,
    "meter of streams": Meter._fields,
    "streams": Latest._fields,
    "buckets with bounds": ExplicitBuckets._fields,
}
"""What is stored as a list: the names of its items."""

RECORDS: tuple[records.Record, ...] = (
    records.StepRecord(1, "trainer", "step", 2, 3, 4.5, {"loss": 0.5, "nan": float("nan")}, 1, amendment=True),
    records.Params(2, 4.5, {"lr": 0.1, "model": {"depth": 4, "tags": ["a", None, True]}}),
    records.Summary(3, 4.5, {"best": 0.5}),
    records.Text(4, 4.5, "note", "step", None, "text\n"),
    records.Table(5, 4.5, "table", "step", 2, ("a", "b"), ((1, "x"), (None, 2.5))),
    records.Image(6, 4.5, "image", "step", 2, b"png", 3, 4, "caption"),
    records.Audio(7, 4.5, "audio", "step", 2, b"wav", 16_000, None),
    records.HistogramValue(8, 4.5, "histogram", "step", 2, (0.0, 1.0), (5.0,)),
    records.Artifact(9, 4.5, "model", "checkpoint", "a/b", Path("c/d"), "file:///c/d", 7, "ab" * 32, 2, ("best",)),
    records.SpanBatch(
        10,
        [
            records.Span("0" * 32, span * 16, None, "forward", 1, 2, "trainer", 0, "step", 2, {"a": 1}, "ok")
            for span in "123"
        ],
    ),
    records.RunStatus(11, 4.5, "finished"),
)


_SHOWN = {code: f"\\x{code:02x}" for code in range(32) if code != ord("\n")}
"""Control characters, as a person can read them."""


def run_db() -> Iterator[str]:
    """Yield the lines that describe `run.db`."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "run.db")
        Outbox(path).close()
        yield from tables(path)
    for record in RECORDS:
        kind, text, media = encode(record)
        yield f"record {kind}: {text.translate(_SHOWN)} {media!r}"
    for name, items in NAMED.items():
        yield f"{name}: {', '.join(items)}"
    first = next(states())
    points = next(first[key] for key in sorted(first) if key.startswith("disk/points/"))
    yield f"points of the first unit: {points.hex()}"
    found: defaultdict[str, list[Any]] = defaultdict(list)
    for state in states():
        for key, data in state.items():
            kind, values = read(key, data)
            found[kind] += values
    for kind, values in sorted(found.items()):
        if isinstance(values[0], dict):
            for name in sorted(values[0]):
                yield f"engine {kind}, {name}: {shape_of([value[name] for value in values])}"
        else:
            yield f"engine {kind}: {shape_of(values)}"


def states() -> Iterator[Mapping[str, bytes]]:
    """Yield an engine's state in the middle of the job, and at its end."""
    decoder = Decoder()
    engine = Engine(job.EXPERIMENT, EngineSettings(retained_bytes=7_000, closed_bytes=2_400))
    state: dict[str, bytes | None] = {}
    for number, requests in enumerate((job.at_once(), job.late(), job.after())):
        for request in requests:
            decoded = decoder.protobuf(request.signal, request.body)  # type: ignore[arg-type]
            for observation in decoded.observations.get(job.EXPERIMENT, ()):
                engine.observe(observation, 1_800_000_000.0 + number)
        engine.advance(1_800_000_000.5 + number)
        state.update(engine.take().changes)
        yield {key: data for key, data in state.items() if data is not None}


def read(key: str, data: bytes) -> tuple[str, list[Any]]:
    """Return what kind of entry it is, and what is in it."""
    kind, *rest = key.split("/")
    if kind == "recent":
        return kind, [data.hex()]
    if kind == "moments":
        line, _, moments = data.partition(b"\n")
        return kind, [[json.loads(line), moments.hex()]]
    if kind == "stream":
        head, buckets, columns = data.split(b"\n", 2)
        return kind, [[json.loads(head), json.loads(buckets), columns.hex()]]
    if kind == "disk":
        kind = f"disk {rest[0]}"
    if kind == "disk points":
        line, _, columns = data.partition(b"\n")
        np.frombuffer(columns, np.float64)
        return "points of a unit", json.loads(line)
    if kind == "disk names":
        return kind, [json.loads(zlib.decompress(data))]
    return kind, [json.loads(data)]


def shape_of(values: Sequence[Any]) -> str:
    """Return of which types values are that stand in one place; what is inside of a mapping is named by the data."""
    values = [value for value in values if value is not None]
    if values and all(isinstance(value, dict) for value in values):
        return f"{{{shape_of([item for value in values for item in value.values()])}}}"
    if values and all(isinstance(value, list) for value in values):
        if len(set(map(len, values))) == 1 and len(values[0]) > 1:
            return f"[{', '.join(shape_of(items) for items in zip(*values, strict=True))}]"
        return f"[{shape_of([item for value in values for item in value])}…]"
    return " or ".join(sorted({_name_of(value) for value in values})) or "any"


def _name_of(value: Any) -> str:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return "number"
    return type(value).__name__


def journal_db() -> Iterator[str]:
    """Yield the lines that describe `journal.db`, and the bytes of a file beside it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "journal.db")
        Journal(path, lambda state_entries: None).close()
        yield from tables(path)
        files = JournalFiles(Path(folder), "0123456789abcdef")
        files.append([Entry(7, "metrics", b"metrics")])
        files.drop(6)
        files.append([Entry(8, "traces", b"spans"), Entry(9, "logs", b"logs")])
        files.close()
        for file in Path(folder).glob("*.log"):
            yield f"{file.name}: {file.read_bytes()!r}"


def tables(path: Path) -> Iterator[str]:
    """Yield the tables of a database."""
    with closing(sqlite3.connect(path)) as connection:
        for (text,) in connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name"):
            yield str(text)


def spool() -> Iterator[str]:
    """Yield the bytes of a spool."""
    frames = [Frame("M", b"metrics", 3), Frame("S", b"spans", 1), Frame("L", b"logs", 1)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.spool")
        segment = FileSegment(path, b"resource")
        for frame in frames:
            segment.append([encode_frame(frame), frame.payload])
        segment.close()
        yield repr(path.read_bytes())


def rendezvous() -> Iterator[str]:
    """Yield the files by which processes find their service."""
    with tempfile.TemporaryDirectory() as folder:
        place = Rendezvous(Path(folder))
        place.publish(Service("http://127.0.0.1:1", "token", 7, "/runs/a/b", ("jsonl",)))
        for path in (place.service_file, place.run_file):
            yield f"{path.name}: {path.read_text().replace(own_version(), '…')}"


def served_json() -> Iterator[str]:
    """Yield what is kept of how a run is served."""
    with tempfile.TemporaryDirectory() as folder:
        ServedSettings({"jsonl": {"every": 2}}, {"A": "b"}, ("C",), "/d", "e.yaml", is_of_serve=True).keep(Path(folder))
        yield Path(folder, "served.json").read_text().replace(own_version(), "…")


DESCRIBED: Mapping[str, Callable[[], Iterator[str]]] = {
    "run.db": run_db,
    "journal.db": journal_db,
    "spool": spool,
    "rendezvous": rendezvous,
    "served.json": served_json,
}


def main() -> None:
    for name, version in VERSIONS.items():
        path = FORMS / f"{name}-{version}.txt"
        if not path.exists():
            path.write_text("\n".join(DESCRIBED[name]()) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
