from __future__ import annotations

import errno
import json
import math
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from otel_ml_exporters.backends.jsonl import JsonlExporter
from otel_ml_exporters.errors import RetryableExportError
from otel_ml_exporters.records import Image, Params, RunInfo, Span, SpanBatch, StepRecord


def row(seq: int, values: dict[str, float]) -> StepRecord:
    return StepRecord(seq, "trainer", "step", seq, 0, 1.7e9 + seq, values)


def spans(seq: int) -> SpanBatch:
    return SpanBatch(seq, tuple(Span("1", f"{seq}{at}", None, "forward", 1, 2, "trainer", 0, "step", 1) for at in "ab"))


def started(run_dir: Path) -> JsonlExporter:
    exporter = JsonlExporter()
    exporter.start(RunInfo("01J", "digits", "01J", run_dir, 1.7e9))
    return exporter


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_step_is_one_line_with_the_keys_of_the_contract(tmp_path: Path) -> None:
    exporter = started(tmp_path)

    exporter.export(
        [
            row(1, {"loss": 0.5}),
            StepRecord(2, "evaluator", "eval", 7, 1, 3.5, {"acc": 1.0}, writers_missing=2, amendment=True),
        ]
    )
    exporter.shutdown(1.0, None)

    first = {"seq": 1, "role": "trainer", "axis": "step", "step": 1, "attempt": 0, "time": 1.7e9 + 1}
    second = {"seq": 2, "role": "evaluator", "axis": "eval", "step": 7, "attempt": 1, "time": 3.5}
    assert lines(tmp_path / "metrics.jsonl") == [
        {**first, "values": {"loss": 0.5}},
        {**second, "values": {"acc": 1.0}, "writers_missing": 2, "amendment": True},
    ]


def test_spans_that_are_written_again_are_all_there_though_the_writer_is_killed_meanwhile(tmp_path: Path) -> None:
    records = [spans(1), row(2, {"loss": 0.5}), spans(3), row(4, {"loss": 0.25}), spans(5), row(6, {"loss": 0.125})]
    first = started(tmp_path)
    first.export(records)
    first.shutdown(1.0, None)
    before = (tmp_path / "metrics.jsonl").read_bytes(), (tmp_path / "spans.jsonl").read_bytes()
    (tmp_path / "spans.jsonl").unlink()

    killed = started(tmp_path)
    assert killed.position() == 0
    killed.export(records[:2])
    again = started(tmp_path)

    again.export([record for record in records if record.seq > (again.position() or 0)])
    again.shutdown(1.0, None)
    assert ((tmp_path / "metrics.jsonl").read_bytes(), (tmp_path / "spans.jsonl").read_bytes()) == before
    assert started(tmp_path).position() == 6
    assert {path.name for path in tmp_path.iterdir()} == {"metrics.jsonl", "metrics.columns", "spans.jsonl"}


@pytest.mark.parametrize("line", [b'{"seq":"7"}', b'{"seq":true}', b'{"seq":1.5}', b"[7]", b"7"])
def test_a_last_line_that_no_exporter_wrote_is_cut_off(tmp_path: Path, line: bytes) -> None:
    first = started(tmp_path)
    first.export([row(1, {"loss": 0.5}), spans(2)])
    first.shutdown(1.0, None)
    whole = (tmp_path / "metrics.jsonl").read_bytes()
    for name in ("metrics.jsonl", "spans.jsonl"):
        with (tmp_path / name).open("ab") as file:
            file.write(line + b"\n")

    exporter = started(tmp_path)

    assert exporter.position() == 1
    exporter.shutdown(1.0, None)
    assert (tmp_path / "metrics.jsonl").read_bytes() == whole


def test_values_that_are_not_finite_are_tokens_that_python_reads(tmp_path: Path) -> None:
    exporter = started(tmp_path)

    exporter.export([row(1, {"a": math.nan, "b": math.inf, "c": -math.inf})])
    exporter.shutdown(1.0, None)

    assert '{"a":NaN,"b":Infinity,"c":-Infinity}' in (tmp_path / "metrics.jsonl").read_text()


def test_a_file_torn_at_any_byte_goes_on_after_its_last_whole_line(tmp_path: Path) -> None:
    exporter = started(tmp_path)
    exporter.export([row(seq, {"loss": 1 / seq}) for seq in (1, 2, 3)])
    exporter.shutdown(1.0, None)
    data = (tmp_path / "metrics.jsonl").read_bytes()

    seen = set()
    for size in range(len(data) + 1):
        (tmp_path / "metrics.jsonl").write_bytes(data[:size])
        again = started(tmp_path)
        position = again.position()
        again.export([row(seq, {"loss": 1 / seq}) for seq in range(position + 1, 5)])
        again.shutdown(1.0, None)
        seen.add(position)
        assert [line["seq"] for line in lines(tmp_path / "metrics.jsonl")] == [1, 2, 3, 4]

    assert seen == {0, 1, 2, 3}


def test_what_a_power_cut_left_as_zeros_is_cut_off(tmp_path: Path) -> None:
    exporter = started(tmp_path)
    exporter.export([row(1, {"loss": 1.0})])
    exporter.shutdown(1.0, None)
    with (tmp_path / "metrics.jsonl").open("ab") as torn:
        torn.write(bytes(100) + b"\n" + bytes(50))

    assert started(tmp_path).position() == 1
    assert len(lines(tmp_path / "metrics.jsonl")) == 1


def test_spans_that_are_ahead_of_the_metrics_are_written_anew(tmp_path: Path) -> None:
    exporter = started(tmp_path)
    exporter.export([spans(1), row(2, {"loss": 1.0}), spans(3)])
    exporter.shutdown(1.0, None)

    again = started(tmp_path)
    position = again.position()
    again.export([spans(3), row(4, {"loss": 1.0})])
    again.shutdown(1.0, None)

    assert position == 2
    assert [line["span_id"] for line in lines(tmp_path / "spans.jsonl")] == ["1a", "1b", "3a", "3b"]


def test_a_full_disk_leaves_both_files_as_they_were(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exporter = started(tmp_path)
    exporter.export([spans(1), row(2, {"loss": 1.0})])
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    with monkeypatch.context() as disk:
        disk.setattr(os, "write", full_after_a_few_bytes_of(tmp_path / "metrics.jsonl"))
        with pytest.raises(RetryableExportError, match="No space left"):
            exporter.export([spans(3), row(4, {"loss": 1.0})])
    after = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    exporter.shutdown(1.0, None)

    assert after == before


def test_what_a_disk_took_a_part_of_and_could_not_be_cut_is_cut_before_the_batch_comes_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exporter = started(tmp_path)
    exporter.export([spans(1), row(2, {"loss": 1.0})])

    def gone(file: int, size: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as disk:
        disk.setattr(os, "write", full_after_a_few_bytes_of(tmp_path / "metrics.jsonl"))
        disk.setattr(os, "ftruncate", gone)
        for _ in range(2):
            with pytest.raises(RetryableExportError, match="error"):
                exporter.export([spans(3), row(4, {"loss": 1.0})])
    exporter.export([spans(3), row(4, {"loss": 1.0})])
    exporter.shutdown(1.0, None)

    assert [line["seq"] for line in lines(tmp_path / "metrics.jsonl")] == [2, 4]
    assert [line["span_id"] for line in lines(tmp_path / "spans.jsonl")] == ["1a", "1b", "3a", "3b"]


def full_after_a_few_bytes_of(path: Path) -> Callable[[int, bytes], int]:
    """Return a `write` that finds no room for the end of what comes to a file."""
    write, full = os.write, path.stat().st_ino

    def written(file: int, data: bytes) -> int:
        if os.fstat(file).st_ino != full:
            return write(file, data)
        if len(data) < 20:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(file, data[:-10])

    return written


def test_an_image_is_a_file_and_its_name_stays_in_the_folder_of_media(tmp_path: Path) -> None:
    exporter = started(tmp_path)

    exporter.export([Image(1, 1.0, "../../digits/wrong", "step", 3, b"png", 4, 2)])
    exporter.shutdown(1.0, None)

    [line] = lines(tmp_path / "metrics.jsonl")
    path = (tmp_path / line["path"]).resolve()
    assert path.read_bytes() == b"png"
    assert (tmp_path / "media").resolve() in path.parents


@pytest.mark.parametrize("names", [["a", "a-1.png/b"], ["a-2.png/b", "a"]], ids=["file first", "folder first"])
def test_no_name_of_an_image_stands_in_the_way_of_another_one(tmp_path: Path, names: list[str]) -> None:
    exporter = started(tmp_path)

    exporter.export([Image(at, 1.0, name, "step", 3, name.encode(), 4, 2) for at, name in enumerate(names, start=1)])
    exporter.shutdown(1.0, None)

    found = {line["name"]: (tmp_path / line["path"]).read_text() for line in lines(tmp_path / "metrics.jsonl")}
    assert found == {name: name for name in names}


def test_a_folder_that_cannot_be_written_to_is_said_and_may_be_tried_again(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("a file where the folder should be")

    with pytest.raises(RetryableExportError, match="run cannot be written to"):
        started(tmp_path / "run")


def test_what_cannot_be_made_a_line_leaves_no_spans_that_are_there_twice_when_the_batch_comes_again(
    tmp_path: Path,
) -> None:
    exporter = started(tmp_path)
    odd = Params(2, 0.0, {"model": object()})  # type: ignore[dict-item]

    with pytest.raises(TypeError):
        exporter.export([spans(1), odd])
    exporter.export([spans(1)])
    exporter.shutdown(1.0, None)

    assert [line["span_id"] for line in lines(tmp_path / "spans.jsonl")] == ["1a", "1b"]
