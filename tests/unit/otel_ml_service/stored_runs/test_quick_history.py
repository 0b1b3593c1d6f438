"""`metrics.columns` may be there or not, whole, torn or wrong: what is read of a run is the same."""

from __future__ import annotations

import json
import math
import os
from contextlib import closing
from pathlib import Path
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import otel_ml
from otel_ml.wire.columns import beside, head
from otel_ml_exporters import metric_columns
from otel_ml_exporters.backends.jsonl import JsonlExporter
from otel_ml_exporters.records import Params, Record, RunInfo, RunStatus, StepRecord
from otel_ml_service.storage.outbox import Commit, Outbox
from otel_ml_service.stored_runs.quick_history import history_of
from otel_ml_service.stored_runs.read_records import records
from otel_ml_service.stored_runs.run_folders import RunFolder
from otel_ml_service.stored_runs.run_history import History, history

NAMES = ("loss", "accuracy", "time/forward", "otel_ml/lag", "größe")
WIDE = {f"layer/{number}/norm": 0.5 for number in range(40)}


def exporter_of(folder: Path, every: int = 1) -> JsonlExporter:
    exporter = JsonlExporter(every=every)
    exporter.start(RunInfo(id="one", experiment="e", name="one", dir=folder, started_at=0.0))
    return exporter


def stored(run: RunFolder, every_record: list[Record], exported: list[Record] | None = None, every: int = 1) -> None:
    with closing(Outbox(run.database)) as outbox:
        outbox.commit(Commit(records=every_record))
    exporter = exporter_of(run.path, every)
    exporter.export(every_record if exported is None else exported)
    exporter.shutdown(1.0, None)


def steps(count: int, begin: int = 1) -> list[Record]:
    return [StepRecord(begin + n, "trainer", "step", n, 0, n / 10, {"loss": 1 / (n + 1), **WIDE}) for n in range(count)]


def comparable(read: History) -> tuple[object, ...]:
    series = {key: [(step, float(found[step])) for step in sorted(found)] for key, found in read.series.items()}
    counts = read.amendments, read.rows, read.status, read.last_seq, read.began, read.ended, dict(read.params)
    return repr(sorted(series.items())), counts, {kind: n for kind, n in read.others.items() if kind != "SpanBatch"}


@st.composite
def runs(draw: st.DrawFn) -> list[Record]:
    values = st.dictionaries(st.sampled_from(NAMES), st.floats() | st.integers(-(10**6), 10**6), max_size=4)
    found: list[Record] = [Params(1, 0.5, {"lr": 0.1})]
    for seq in range(2, draw(st.integers(2, 30))):
        place = draw(st.sampled_from(["step", "eval"])), draw(st.integers(0, 8)), draw(st.integers(0, 2))
        amends = draw(st.booleans())
        found.append(StepRecord(seq, "trainer", *place, float(seq), draw(values), amendment=amends))
    return [*found, RunStatus(len(found) + 1, 99.0, "finished")]


@given(runs(), st.integers(1, 400), st.integers(0, 30))
@settings(max_examples=40, deadline=None)
def test_what_is_read_by_columns_is_what_the_text_says(
    tmp_path_factory: pytest.TempPathFactory, found: list[Record], chunk: int, killed_after: int
) -> None:
    """The writer is killed once, and goes on; chunks end anywhere."""
    run = RunFolder(tmp_path_factory.mktemp("run"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(metric_columns, "_CHUNK_BYTES", chunk)  # else a chunk ends behind all that fits into a test
        exporter_of(run.path).export(found[:killed_after])
        stored(run, found, found[killed_after:])
    by_columns, some = otel_ml.read(run.path), otel_ml.read(run.path, "loss", "größe")
    shown = history_of(run)

    beside(run.jsonl).unlink()

    assert repr(by_columns) == repr(otel_ml.read(run.path))
    assert repr(some) == repr(otel_ml.read(run.path, "loss", "größe"))
    assert comparable(shown) == comparable(history(records(run)))


def test_of_a_long_run_one_series_is_read_without_the_others(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    stored(run, steps(4000))

    begin = read_bytes()
    found = otel_ml.read(run.path, "loss")["loss"]
    by_read = read_bytes() - begin
    shown = history_of(run, ["lo*"])
    by_show = read_bytes() - begin - by_read

    assert found == (list(range(4000)), [1 / (n + 1) for n in range(4000)])
    assert shown.get("loss") == dict(zip(*found, strict=True))
    assert by_read < run.jsonl.stat().st_size / 10
    assert by_show < run.jsonl.stat().st_size / 10


def read_bytes() -> int:
    return int(Path("/proc/self/io").read_text().split("rchar: ")[1].split()[0])


@pytest.mark.parametrize("damage", ["torn", "garbled", "older text", "line removed", "number edited"])
def test_columns_that_do_not_agree_with_the_text_are_not_believed(tmp_path: Path, damage: str) -> None:
    run = RunFolder(tmp_path)
    exporter = exporter_of(run.path)
    exporter.export(steps(2000))
    exporter.shutdown(1.0, None)
    columns = beside(run.jsonl)
    if damage == "torn":
        columns.write_bytes(columns.read_bytes()[: columns.stat().st_size // 2])
    elif damage == "garbled":
        content = bytearray(columns.read_bytes())
        content[len(content) // 2] ^= 0xFF
        columns.write_bytes(content)
    elif damage == "older text":
        run.jsonl.write_bytes(b"".join(run.jsonl.read_bytes().splitlines(keepends=True)[:700]))
    elif damage == "line removed":
        lines = run.jsonl.read_bytes().splitlines(keepends=True)
        run.jsonl.write_bytes(b"".join(lines[:900] + lines[901:]))
    else:
        run.jsonl.write_bytes(run.jsonl.read_bytes().replace(b'"loss":0.5,', b'"loss":0.7,', 1))
    expected = otel_ml.read(run.path)
    shown = history_of(run)
    columns.unlink(missing_ok=True)

    assert expected == otel_ml.read(run.path)
    assert comparable(shown) == comparable(history(records(run)))


def test_what_an_exporter_leaves_out_is_read_from_the_services_own_file(tmp_path: Path) -> None:
    """With `every: 10` the text has a tenth of the steps. Its columns say so: the service's own file is asked."""
    run, found = RunFolder(tmp_path), steps(3000)
    stored(run, found, found[::10], every=10)

    assert history_of(run).rows == 3000


def test_columns_of_a_run_that_has_none_are_written_by_who_reads_it_first(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    stored(run, steps(2000))
    beside(run.jsonl).unlink()

    first = history_of(run)

    assert beside(run.jsonl).exists()
    assert comparable(history_of(run)) == comparable(first) == comparable(history(records(run)))


def test_a_folder_that_nobody_may_write_to_is_read_all_the_same(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run")
    stored(run, steps(2000))
    beside(run.jsonl).unlink()
    beside(run.jsonl).with_name("metrics.columns.new").mkdir()  # a file of that name cannot be made, whoever asks

    assert history_of(run).rows == 2000


def test_a_run_that_goes_on_is_known_up_to_its_last_line(tmp_path: Path) -> None:
    exporter = exporter_of(tmp_path)
    exporter.export(steps(2000))
    with closing(Outbox(RunFolder(tmp_path).database)) as outbox:
        outbox.commit(Commit(records=steps(2000)))
        shown = history_of(RunFolder(tmp_path), ["loss"])

    assert list(shown.get("loss")) == list(range(2000))
    assert math.isclose(shown.get("loss")[1999], 1 / 2000)
    assert beside(tmp_path / "metrics.jsonl").stat().st_size > 0
    exporter.shutdown(1.0, None)


@pytest.mark.parametrize("planted", ["link", "pipe"])
def test_who_looks_at_a_run_of_somebody_else_writes_over_nothing_and_waits_for_nobody(
    tmp_path: Path, planted: str
) -> None:
    run, mine = RunFolder(tmp_path / "run"), tmp_path / "mine"
    stored(run, steps(2000))
    mine.write_text("precious")
    columns = beside(run.jsonl)
    columns.unlink()
    for path in (columns, columns.with_name("metrics.columns.new")):
        path.symlink_to(mine) if planted == "link" else os.mkfifo(path)

    assert history_of(run).rows == 2000
    assert len(otel_ml.read(run.path, "loss")["loss"][0]) == 2000
    assert mine.read_text() == "precious"


def test_columns_that_say_what_cannot_be_are_not_believed(tmp_path: Path) -> None:
    """Their checksums are right: somebody has made them so."""
    run = RunFolder(tmp_path)
    stored(run, steps(2000))
    expected = comparable(history(records(run)))
    text = run.jsonl.stat()
    said = {
        "begin": 0,
        "end": text.st_size,
        "crc": 0,
        "mtime_ns": text.st_mtime_ns,
        "last_seq": 9,
        "times": [],
        "others": [],
    }
    for rows, series in ((10**15, []), (0, [["step", "loss", 5, 0]]), (-1, []), (0, [[1, 2, 3]])):
        line = json.dumps({**said, "rows": rows, "rows_crc": 0, "series": series}).encode()
        beside(run.jsonl).write_bytes(head(whole=True) + b"%08x %b\n" % (crc32(line), line))

        assert comparable(history_of(run)) == expected
        assert len(otel_ml.read(run.path, "loss")["loss"][0]) == 2000


@pytest.mark.parametrize(("mebibytes", "is_written"), [(1, True), (9, False)])
def test_an_exporter_that_goes_on_with_a_long_text_leaves_its_columns_to_who_reads_it(
    tmp_path: Path, mebibytes: int, is_written: bool
) -> None:
    stored(RunFolder(tmp_path), steps(1))
    text, columns = tmp_path / "metrics.jsonl", beside(tmp_path / "metrics.jsonl")
    line = text.read_bytes()
    text.write_bytes(line * (mebibytes * 2**20 // len(line)))
    columns.unlink()

    later = metric_columns.MetricColumns(text, whole=True)
    begun = columns.stat().st_size
    with text.open("ab") as file:
        file.write(line)
    later.add([(json.loads(line), line)])
    later.close()

    assert (columns.stat().st_size > begun) is is_written
