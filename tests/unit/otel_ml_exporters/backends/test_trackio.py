"""What the `trackio` exporter does to names; what it stores is in `tests/contract`."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from otel_ml_exporters.backends.trackio.exporter import _translated  # private: Trackio keeps one folder a process
from otel_ml_exporters.backends.trackio.rows import step_row
from otel_ml_exporters.backends.trackio.storage import project_name
from otel_ml_exporters.errors import PermanentExportError, RetryableExportError
from tests.contract.stream import step


@pytest.mark.parametrize("taken", ["my.model", "registry-x", "model_system", "ünï", ""])
def test_a_name_that_would_be_another_projects_file_is_replaced(taken: str) -> None:
    from trackio.sqlite_storage import SQLiteStorage
    from trackio.utils import canonical_project_name

    name = project_name(taken)

    SQLiteStorage.validate_project_name(name)
    assert canonical_project_name(name) == name
    assert project_name(taken) == name != project_name(taken + "x")


def test_names_that_trackio_writes_over_are_kept_apart() -> None:
    row = step_row(step(1, 5, {"step": 1.0, "time": 2.0, "loss": 3.0}))

    assert row.values == {"metric/step": 1.0, "metric/time": 2.0, "loss": 3.0}


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
