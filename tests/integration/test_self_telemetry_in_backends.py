"""What a backend shows of otel_ml's own account (ADR 0051), read back from TensorBoard's and MLflow's own files."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from otel_ml.exceptions import ConfigError
from otel_ml_exporters import PermanentExportError, Record, StepRecord, Summary
from otel_ml_exporters.testing import RecordingExporter
from otel_ml_service.config import ServiceConfig
from otel_ml_service.stored_runs.read_records import is_over_within
from otel_ml_service.stored_runs.run_folders import find
from tests.contract.readers.tensorboard import opened
from tests.integration.conftest import Bench
from tests.integration.worker_process import environment, run
from tests.otlp import FakeWriter
from tests.waiting import eventually

JOB = """
    import otel_ml
    otel_ml.init("digits", id="one")
    for step in range(20):
        with otel_ml.step(step), otel_ml.timed("forward"):
            otel_ml.log({"loss": 1 / (step + 1)})
"""
USERS = {"loss", "time/forward"}


class Backend(RecordingExporter):
    """A recorder that gets what W&B gets."""

    keeps_self_telemetry = False

    def names(self) -> set[str]:
        return {name for one in self.records if isinstance(one, (StepRecord, Summary)) for name in one.values}


def job(tmp_path: Path, **variables: str) -> Path:
    """Run a job, wait until its service has delivered everything and ended, and return the run's folder."""
    run(JOB, environment(tmp_path, {"OTEL_ML_EXPORTERS": "jsonl,tensorboard,mlflow", **variables}), tmp_path)
    folder = tmp_path / "runs" / "digits" / "one"
    eventually((folder / "metrics.jsonl").exists, timeout=60)
    assert is_over_within(find("one", tmp_path / "runs"), 60)
    return folder


def mlflow(tmp_path: Path, query: str) -> set[str]:
    with closing(sqlite3.connect(tmp_path / "runs" / "mlflow.db")) as database:
        return {str(value) for (value,) in database.execute(query)}


def tensorboard(folder: Path) -> set[str]:
    runs = [found for path in (folder / "tensorboard", folder / "tensorboard" / "time") if (found := opened(path))]
    return {tag.removeprefix("summary/") for found in runs for tag in found.Tags()["scalars"]}


def stored(folder: Path) -> set[str]:
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return {name for row in rows for name in row.get("values", ())}


def test_the_first_screens_of_a_healthy_run_are_the_users_metrics_and_the_runs_folder_has_everything(
    tmp_path: Path,
) -> None:
    folder = job(tmp_path)

    assert tensorboard(folder) == USERS
    assert mlflow(tmp_path, "SELECT DISTINCT key FROM metrics") == USERS
    assert {"otel_ml/recorded", "otel_ml/lag/exporter/mlflow", "otel_ml/lost/exporter/tensorboard"} < stored(folder)


def test_who_wants_all_of_it_gets_all_of_it(tmp_path: Path) -> None:
    folder = job(tmp_path, OTEL_ML_SELF="full")

    assert tensorboard(folder) == stored(folder)
    assert mlflow(tmp_path, "SELECT DISTINCT key FROM metrics") == stored(folder)


def test_a_loss_of_one_exporter_is_seen_in_the_others_with_how_much_there_was(bench: Bench) -> None:
    class Refusing(RecordingExporter):
        def export(self, records: Sequence[Record]) -> None:
            raise PermanentExportError("no room.")

    backend = Backend()
    sender = bench.sender(bench.service({"backend": lambda: backend, "refusing": Refusing}))
    writer = FakeWriter()
    sender.send("metrics", writer.step(0, {"loss": 1.0}))
    eventually(lambda: (run := sender.run()) and run["exporters"]["refusing"]["lost"])
    sender.send("metrics", writer.step(1, {"loss": 1.0}))
    sender.send("logs", writer.goodbye(dropped={"spool_full": 7}))
    eventually(lambda: backend.is_closed)

    steps = [record for record in backend.records if isinstance(record, StepRecord)]
    own = {name for name in backend.names() if name.startswith("otel_ml/")}
    lost = [record.values.get("otel_ml/lost/exporter/refusing", 0.0) for record in steps]
    assert own == {
        "otel_ml/lost/exporter/refusing",
        "otel_ml/step",
        "otel_ml/dropped/spool_full",
        "otel_ml/recorded",
    }
    assert max(lost) >= 1.0


@pytest.mark.parametrize("wrong", ["all", "FULLY"])
def test_another_word_is_a_problem_of_the_configuration(wrong: str) -> None:
    with pytest.raises(ConfigError, match="OTEL_ML_SELF: expected one of problems, full, got"):
        ServiceConfig.load(environ={"OTEL_ML_SELF": wrong})
