"""The file of the `swanlab` exporter, as SwanLab's own reader takes it, after all that may happen to it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_ml_exporters.backends.swanlab import SwanlabExporter
from otel_ml_exporters.backends.swanlab.run_file import HEADER
from otel_ml_exporters.errors import RetryableExportError
from otel_ml_exporters.leveldb_log import framed
from otel_ml_exporters.records import Params, RunStatus, StepRecord
from tests.contract.stream import AT, run_info, step

BLOCK = 32_768


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    return tmp_path / "runs" / "digits" / "run"


def started(run_dir: Path) -> SwanlabExporter:
    exporter = SwanlabExporter()
    exporter.start(run_info(run_dir, "run"))
    return exporter


def file_of(run_dir: Path) -> Path:
    return run_dir.parent.parent / "swanlog" / "run-run" / "run-run.swanlab"


def contents(path: Path) -> list[bytes]:
    from swanlab.sdk.internal.core_python.store import DataStoreReader

    reader = DataStoreReader()
    reader.open(path)
    found = []
    while (content := reader.scan()) is not None:
        found.append(content)
    reader.close()
    return found


def scalars(run_dir: Path) -> list[Any]:
    from swanlab.proto.swanlab.record.v1.record_pb2 import Record

    records = [Record.FromString(content) for content in contents(file_of(run_dir))]
    return [record.scalar for record in records if record.HasField("scalar")]


def values(run_dir: Path) -> list[float]:
    return [scalar.value.number for scalar in scalars(run_dir)]


@given(
    before=st.integers(BLOCK - 60, BLOCK),
    sizes=st.lists(st.sampled_from([0, 1, 7, 20, BLOCK - 14, BLOCK - 7, BLOCK, 2 * BLOCK + 3]), min_size=1, max_size=6),
)
def test_messages_of_any_size_at_any_place_are_read_back(
    before: int, sizes: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    messages = [bytes([65 + at]) * size for at, size in enumerate(sizes)]
    first = framed([b"x" * (before - len(HEADER) - 7)], len(HEADER))
    path = tmp_path_factory.mktemp("file") / "run-x.swanlab"

    path.write_bytes(HEADER + first + framed(messages, len(HEADER) + len(first)))

    assert contents(path)[1:] == messages


def test_a_torn_end_is_cut_off_and_the_run_goes_on_in_the_same_file(run_dir: Path) -> None:
    exporter = started(run_dir)
    exporter.export([step(1, 1, {"loss": 0.5})])
    exporter.shutdown(1.0, RunStatus(2, AT, "failed"))
    with file_of(run_dir).open("ab") as file:
        file.write(b"torn")

    second = started(run_dir)
    assert second.position() == 1
    second.export([step(2, 2, {"loss": 0.25})])
    second.shutdown(1.0, None)

    assert values(run_dir) == [0.5, 0.25]


def test_a_file_that_lost_its_end_is_written_anew(run_dir: Path) -> None:
    exporter = started(run_dir)
    exporter.export([step(1, 1, {"loss": 0.5})])
    exporter.shutdown(1.0, None)
    file_of(run_dir).write_bytes(b":SWL")

    second = started(run_dir)
    assert second.position() == 0
    second.export([step(1, 1, {"loss": 0.5})])
    second.shutdown(1.0, None)

    assert values(run_dir) == [0.5]


def test_a_correction_of_a_correction_is_kept(run_dir: Path) -> None:
    exporter = started(run_dir)
    exporter.export([step(seq, 1, {"loss": float(seq)}, amendment=seq > 1) for seq in (1, 2, 3)])
    exporter.shutdown(1.0, None)

    assert [scalar.key for scalar in scalars(run_dir)] == ["loss", "loss/amended", "loss/amended_2"]


def test_parameters_of_an_earlier_life_stay_in_the_config(run_dir: Path) -> None:
    for seq, params in enumerate([{"lr": float("inf")}, {"epochs": 3}], start=1):
        exporter = started(run_dir)
        exporter.export([Params(seq, AT, params)])
        exporter.shutdown(1.0, None)

    config = (file_of(run_dir).parent / "files" / "config.yaml").read_text()

    assert "epochs" in config
    assert "value: inf" in config


def mark_of(run_dir: Path) -> Path:
    return file_of(run_dir).with_name("otel_ml.json")


def correction(seq: int) -> StepRecord:
    return step(seq, 1, {"loss": float(seq)}, amendment=True)


def test_the_mark_that_each_batch_writes_anew_does_not_grow_with_corrections(run_dir: Path) -> None:
    exporter = started(run_dir)
    exporter.export([step(1, 1, {"loss": 1.0}, amendment=True)])
    before = mark_of(run_dir).stat().st_size

    for seq in range(2, 102):
        exporter.export([step(seq, seq, {"loss": 1.0}, amendment=True)])

    assert mark_of(run_dir).stat().st_size < before + 20
    exporter.shutdown(1.0, None)


def test_corrections_of_a_batch_that_was_killed_before_its_mark_are_counted_once(run_dir: Path) -> None:
    exporter = started(run_dir)
    exporter.export([step(1, 1, {"loss": 1.0}), correction(2)])
    before = mark_of(run_dir).read_bytes()
    exporter.export([correction(3)])
    exporter.shutdown(1.0, None)
    mark_of(run_dir).write_bytes(before)

    second = started(run_dir)
    assert second.position() == 2
    second.export([correction(3), correction(4)])
    second.shutdown(1.0, None)

    assert [scalar.key for scalar in scalars(run_dir)] == ["loss", "loss/amended", "loss/amended_2", "loss/amended_3"]
    assert values(run_dir) == [1.0, 2.0, 3.0, 4.0]


def test_corrections_of_a_batch_that_could_not_be_noted_are_counted_once(run_dir: Path) -> None:
    exporter = started(run_dir)
    exporter.export([step(1, 1, {"loss": 1.0}), correction(2)])
    in_the_way = mark_of(run_dir).with_suffix(".unfinished")
    in_the_way.mkdir()
    with pytest.raises(RetryableExportError):
        exporter.export([correction(3)])
    in_the_way.rmdir()

    exporter.export([correction(3), correction(4)])
    exporter.shutdown(1.0, None)

    assert [scalar.key for scalar in scalars(run_dir)] == ["loss", "loss/amended", "loss/amended_2", "loss/amended_3"]


@pytest.mark.parametrize("left", [b"", bytes(11)], ids=["nothing", "zeros"])
def test_a_run_of_which_the_corrections_were_lost_is_written_anew(left: bytes, run_dir: Path) -> None:
    exporter = started(run_dir)
    exporter.export([step(1, 1, {"loss": 1.0}), correction(2)])
    exporter.shutdown(1.0, None)
    for lost in file_of(run_dir).parent.glob("*.corrections"):
        lost.write_bytes(left)

    second = started(run_dir)
    assert second.position() == 0
    second.export([step(1, 1, {"loss": 1.0}), correction(2)])
    second.shutdown(1.0, None)

    assert [scalar.key for scalar in scalars(run_dir)] == ["loss", "loss/amended"]


def test_a_run_whose_mark_is_of_the_first_form_goes_on_with_its_corrections(run_dir: Path) -> None:
    exporter = started(run_dir)
    exporter.export([step(1, 1, {"loss": 1.0}), correction(2)])
    exporter.shutdown(1.0, None)
    mark = json.loads(mark_of(run_dir).read_text())
    first_form = {name: mark[name] for name in ("seq", "size", "number", "params")} | {"amended": {"loss@1": 1}}
    for newer in file_of(run_dir).parent.glob("*.corrections"):
        newer.unlink()
    mark_of(run_dir).write_text(json.dumps(first_form))

    for seq in (3, 4):
        exporter = started(run_dir)
        assert exporter.position() == seq - 1
        exporter.export([correction(seq)])
        exporter.shutdown(1.0, None)

    assert [scalar.key for scalar in scalars(run_dir)] == ["loss", "loss/amended", "loss/amended_2", "loss/amended_3"]
