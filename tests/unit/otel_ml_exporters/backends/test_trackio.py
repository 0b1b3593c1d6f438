"""What the `trackio` exporter does to names; what it stores is in `tests/contract`."""

from __future__ import annotations

import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest

from otel_ml.exceptions import MissingDependencyError
from otel_ml_exporters.backends.trackio.exporter import (
    TrackioExporter,
    _translated,  # private: Trackio keeps one folder a process
)
from otel_ml_exporters.backends.trackio.rows import step_row
from otel_ml_exporters.backends.trackio.storage import project_name
from otel_ml_exporters.errors import PermanentExportError, RetryableExportError
from otel_ml_exporters.records import Image, RunInfo, Table
from tests.contract.conftest import point_trackio_at
from tests.contract.stream import step


@pytest.mark.parametrize("taken", ["my.model", "registry-x", "model_system", "ünï", "", "x" * 300])
def test_a_name_that_would_be_another_projects_file_is_replaced(taken: str) -> None:
    from trackio.sqlite_storage import SQLiteStorage
    from trackio.utils import canonical_project_name

    name = project_name(taken)

    SQLiteStorage.validate_project_name(name)
    assert canonical_project_name(name) == name
    assert len(f"{name}_artifact_manifests.parquet") <= 255, "no file system takes the names of its files"
    assert project_name(taken) == name != project_name(taken + "x")


def test_names_that_trackio_writes_over_are_kept_apart() -> None:
    row = step_row(step(1, 5, {"step": 1.0, "time": 2.0, "loss": 3.0}))

    assert row.values == {"metric/step": 1.0, "metric/time": 2.0, "loss": 3.0}


def test_columns_of_one_name_stay_columns_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from trackio.sqlite_storage import SQLiteStorage

    point_trackio_at(tmp_path / "runs" / "trackio", monkeypatch)
    exporter = exporter_of(tmp_path / "runs" / "digits" / "01J", "one")
    exporter.export([Table(1, 0.0, "said", "step", 1, ("a", "a", "b"), ((1, 2, 3), (4, 5, 6)))])

    [stored] = SQLiteStorage.get_logs("digits", "one")
    assert stored["said"]["_value"] == [{"a": 1, "a_2": 2, "b": 3}, {"a": 4, "a_2": 5, "b": 6}]


def test_a_damaged_project_refuses_no_record(tmp_path: Path) -> None:
    damaged = tmp_path / "digits.db"
    damaged.write_bytes(b"a power cut has left this" * 400)

    with (
        closing(sqlite3.connect(damaged)) as database,
        pytest.raises(RetryableExportError, match="not a database"),
        _translated(),
    ):
        database.execute("SELECT * FROM metrics")


def test_values_that_a_project_does_not_take_are_refused(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "digits.db")) as database:
        database.execute("CREATE TABLE metrics (value NOT NULL)")
        with pytest.raises(PermanentExportError, match="NOT NULL"), _translated():
            database.execute("INSERT INTO metrics VALUES (NULL)")


def _locked(*_: object, **__: object) -> None:
    raise sqlite3.OperationalError("database is locked")


def exporter_of(run_dir: Path, name: str) -> TrackioExporter:
    exporter = TrackioExporter()
    exporter.start(RunInfo(id="01J", experiment="digits", name=name, dir=run_dir, started_at=0.0))
    return exporter


@pytest.mark.parametrize("name", ["../../../outside", "{}/outside", "x" * 300, "team/run", ".."])
def test_the_images_of_a_run_stay_in_trackios_folder_whatever_it_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    point_trackio_at(tmp_path / "runs" / "trackio", monkeypatch)
    exporter = exporter_of(tmp_path / "runs" / "digits" / "01J", name.format(tmp_path))

    exporter.export([Image(1, 0.0, "sample", "step", 1, b"a png", 1, 1)])

    media = tmp_path / "runs" / "trackio" / "media" / "digits"
    [found] = tmp_path.rglob("*.png")
    assert len(found.relative_to(media).parts) > 2, "beside the folders of runs"
    assert found.read_bytes() == b"a png"


def test_what_a_name_was_is_stored_also_where_the_first_try_met_a_locked_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from trackio.sqlite_storage import SQLiteStorage

    point_trackio_at(tmp_path / "runs" / "trackio", monkeypatch)
    exporter = exporter_of(tmp_path / "runs" / "digits" / "01J", "one")
    with monkeypatch.context() as patch:
        patch.setattr(SQLiteStorage, "bulk_log", staticmethod(_locked))
        with pytest.raises(RetryableExportError, match="locked"):
            exporter.export([step(1, 1, {"step": 1.0})])
    exporter.export([step(1, 1, {"step": 1.0})])

    config = SQLiteStorage.get_run_config("digits", "one", "01J")
    assert config is not None
    assert config["otel_ml/names"] == {"metric/step": "step"}


def test_a_package_that_is_missing_is_named_and_not_a_part_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "trackio.sqlite_storage", None)

    with pytest.raises(MissingDependencyError, match=r"needs the package 'trackio'\."):
        TrackioExporter().start(RunInfo("one", "e", "one", tmp_path, 0.0))
