"""MLflow reads addresses: what means something in one is a character of a folder's name here."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from otel_ml_exporters.backends.mlflow import MlflowExporter
from otel_ml_exporters.records import Text
from otel_ml_service.cli.open_command import viewers
from otel_ml_service.stored_runs.run_folders import RunFolder
from tests.contract.stream import run_info, step


@pytest.mark.parametrize("name", ["my%20runs", "who?", "a%41#b & c", "100%"])
def test_a_run_is_in_the_folder_of_all_runs_whatever_that_is_called(
    tmp_path: Path, mlflow_database: Path, name: str
) -> None:
    base = tmp_path / name
    run = run_info(base / "digits" / "run", "run")
    base.mkdir()
    shutil.copy(mlflow_database, base / "mlflow.db")
    exporter = MlflowExporter()

    exporter.start(run)
    exporter.export([step(1, 1, {"loss": 0.5}), Text(2, 1.0, "said", "step", 1, "a text")])

    assert exporter.is_intact
    exporter.shutdown(10.0, None)
    with closing(sqlite3.connect(base / "mlflow.db")) as database:
        assert database.execute("SELECT key, value FROM metrics").fetchall() == [("loss", 0.5)]
    assert [path.read_text() for path in (base / "mlflow-artifacts").rglob("*.txt")] == ["a text"]
    assert [path.name for path in tmp_path.iterdir()] == [name]
    command = viewers(RunFolder(run.dir))["mlflow"].command(5000)
    assert exporter.url in command
