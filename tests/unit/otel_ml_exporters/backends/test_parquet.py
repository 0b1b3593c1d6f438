"""The files of the `parquet` exporter: whole, few, and never twice the same rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from otel_ml_exporters.backends.parquet import ParquetExporter
from otel_ml_exporters.errors import RetryableExportError
from otel_ml_exporters.records import RunStatus
from tests.contract.stream import AT, run_info, step


def started(run_dir: Path) -> ParquetExporter:
    exporter = ParquetExporter()
    exporter.start(run_info(run_dir, "run"))
    return exporter


def seqs(run_dir: Path) -> list[int]:
    import pandas as pd

    return sorted(pd.read_parquet(run_dir / "parquet").seq)


def test_many_small_files_become_one(tmp_path: Path) -> None:
    exporter = started(tmp_path)

    for seq in range(1, 101):
        exporter.export([step(seq, seq, {"loss": float(seq)})])

    assert len(list((tmp_path / "parquet").iterdir())) == 37  # the first 64 are one
    assert seqs(tmp_path) == list(range(1, 101))
    exporter.shutdown(1.0, RunStatus(101, AT, "finished"))
    assert [path.name for path in (tmp_path / "parquet").iterdir()] == ["part-000000000001-000000000100.parquet"]
    assert seqs(tmp_path) == list(range(1, 101))


def test_parts_that_somebody_has_removed_are_missed_by_no_merge(tmp_path: Path) -> None:
    exporter = started(tmp_path)
    for seq in range(1, 64):
        exporter.export([step(seq, seq, {"loss": float(seq)})])
    (tmp_path / "parquet" / "part-000000000005-000000000005.parquet").unlink()

    exporter.export([step(64, 64, {"loss": 64.0})])
    exporter.export([step(65, 65, {"loss": 65.0})])

    exporter.shutdown(1.0, RunStatus(66, AT, "finished"))
    assert seqs(tmp_path) == [seq for seq in range(1, 66) if seq != 5]
    assert len(list((tmp_path / "parquet").iterdir())) == 1


def test_what_a_killed_merge_left_is_not_read_twice(tmp_path: Path) -> None:
    exporter = started(tmp_path)
    exporter.export([step(1, 1, {"loss": 0.5})])
    exporter.export([step(2, 2, {"loss": 0.25})])
    small = {path.name: path.read_bytes() for path in (tmp_path / "parquet").iterdir()}
    exporter.shutdown(1.0, RunStatus(3, AT, "finished"))
    for name, content in small.items():
        (tmp_path / "parquet" / name).write_bytes(content)
    (tmp_path / "parquet" / "part-000000000003-000000000009.unfinished").write_bytes(b"PAR1")

    assert started(tmp_path).position() == 2

    assert seqs(tmp_path) == [1, 2]


def test_rows_have_the_types_that_the_page_says(tmp_path: Path) -> None:
    import pandas as pd

    started(tmp_path).export([step(1, 1, {"loss": float("nan")}, time=1_700_000_000.123456)])

    [row] = pd.read_parquet(tmp_path / "parquet").itertuples(index=False)

    assert row.time == pd.Timestamp("2023-11-14T22:13:20.123456Z")
    assert (row.role, row.axis, row.step, row.attempt, row.name, row.amendment) == (
        "trainer",
        "step",
        1,
        0,
        "loss",
        False,
    )
    assert row.value != row.value


def test_a_folder_that_cannot_be_written_to_is_worth_another_try(tmp_path: Path) -> None:
    (tmp_path / "parquet").write_text("a file")

    with pytest.raises(RetryableExportError, match="cannot be written to"):
        started(tmp_path)
