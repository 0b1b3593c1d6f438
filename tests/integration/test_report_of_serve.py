"""`otel-ml report --attach` for a run of `otel-ml serve`: real processes, and stores that are not the default ones."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.integration.worker_process import environment, run
from tests.otlp_server import otlp_server
from tests.ports import free_port

pytestmark = pytest.mark.long

PROGRAM = [sys.executable, "-m", "otel_ml_service"]
TRAIN = """
    import otel_ml
    with otel_ml.init("exp", id="one"):
        for step in otel_ml.steps(range(3)):
            otel_ml.log({"loss": float(step)})
"""
SECRET = "s3cret-of-the-relay"


def record(folder: Path, arguments: tuple[str, ...] = (), variables: Mapping[str, str] | None = None) -> None:
    """Record a run with `otel-ml serve`, started in the folder `there`, and end both."""
    environ, port = environment(folder, variables), free_port()
    command = [*PROGRAM, "serve", "--http", f"127.0.0.1:{port}", "--grpc", "127.0.0.1:0", *arguments]
    with subprocess.Popen(command, env=environ, cwd=there(folder), stderr=subprocess.PIPE, text=True) as service:
        assert service.stderr is not None
        assert any("OTLP/HTTP on" in line for line in service.stderr)
        run(TRAIN, {**environ, "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}"}, folder)
        service.terminate()
        service.communicate(timeout=60)
    assert service.returncode == 0


def there(folder: Path) -> Path:
    (folder / "there").mkdir(exist_ok=True)
    return folder / "there"


def config(folder: Path, exporters: str) -> tuple[str, ...]:
    """Write `otel-ml.yaml`, and return what `otel-ml serve` is called with in that folder."""
    (there(folder) / "otel-ml.yaml").write_text(f"exporters:\n{exporters}")
    return ("--config", "otel-ml.yaml")


def attach(folder: Path, variables: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    command = [*PROGRAM, "report", "one", "--attach"]
    environ = environment(folder, variables)
    return subprocess.run(command, env=environ, cwd=folder, capture_output=True, text=True, check=False, timeout=100)


def reports(store: Path) -> list[list[str]]:
    """Return, for each run that an MLflow store has, the files of its artifact `report`."""
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{store}")
    experiments = [found.experiment_id for found in client.search_experiments(filter_string="name = 'exp'")]
    runs = client.search_runs(experiments) if experiments else []
    return [[file.path for file in client.list_artifacts(found.info.run_id, "artifacts/report")] for found in runs]


def content(folder: Path) -> list[Any]:
    return [path.read_bytes() for path in (folder / "runs").rglob("*") if path.is_file()]


def test_a_report_goes_to_where_the_options_of_serve_had_said(tmp_path: Path) -> None:
    """From another folder, with the file gone: relative paths mean what they did, a variable is asked for."""
    with otlp_server() as relay:
        said = config(
            tmp_path,
            "  jsonl: {}\n  tensorboard: {every: 2}\n  mlflow: {tracking_uri: 'sqlite:///${env:STORE}'}\n"
            f"  otlp: {{endpoint: '{relay.url}', headers: {{x-team: '${{env:RELAY_TOKEN}}'}}}}\n",
        )
        told = {"STORE": "kept.db", "RELAY_TOKEN": SECRET}
        record(tmp_path, said, told)
        (there(tmp_path) / "otel-ml.yaml").unlink()

        without = attach(tmp_path, {"RELAY_TOKEN": SECRET})
        before = reports(there(tmp_path) / "kept.db")
        done = attach(tmp_path, told)
        again = attach(tmp_path, told)  # the service of the first one has left the run as it was

    assert without.returncode == 1
    assert "exporters.mlflow.tracking_uri: the variable STORE is not set" in without.stderr
    assert before == [[]]
    assert done.returncode == 0, done.stderr
    assert "artifact 'report' of one, in jsonl, mlflow, otlp, tensorboard" in done.stderr
    assert again.returncode == 0, again.stderr
    assert reports(there(tmp_path) / "kept.db") == [["artifacts/report/report.html"]]
    assert not (tmp_path / "runs" / "mlflow.db").exists()
    assert not any(SECRET.encode() in file for file in content(tmp_path))


def test_a_report_goes_to_where_variables_had_told_the_exporters_of_serve(tmp_path: Path) -> None:
    record(tmp_path, ("--to", "jsonl,mlflow"), {"MLFLOW_TRACKING_URI": "sqlite:///kept.db"})

    moved = there(tmp_path).rename(tmp_path / "elsewhere")  # what the path began at
    without = attach(tmp_path)
    moved.rename(tmp_path / "there")
    done = attach(tmp_path)

    assert without.returncode == 1
    assert f"The folder '{there(tmp_path)}' is not there" in without.stderr
    assert done.returncode == 0, done.stderr
    assert reports(there(tmp_path) / "kept.db") == [["artifacts/report/report.html"]]
    assert not (tmp_path / "runs" / "mlflow.db").exists()


def test_a_secret_of_the_file_is_in_no_file_of_the_run_and_is_taken_from_the_file(tmp_path: Path) -> None:
    with otlp_server() as relay:
        said = config(tmp_path, f"  jsonl: {{}}\n  otlp: {{endpoint: '{relay.url}', headers: {{x-team: {SECRET}}}}}\n")
        record(tmp_path, said)

        done = attach(tmp_path)
        (there(tmp_path) / "otel-ml.yaml").unlink()
        without = attach(tmp_path)

    assert done.returncode == 0, done.stderr
    assert without.returncode == 1
    assert "exporters.otlp.headers.x-team" in without.stderr
    assert str(there(tmp_path) / "otel-ml.yaml") in without.stderr
    assert not any(SECRET.encode() in file for file in content(tmp_path))


def test_where_an_older_version_kept_no_options_it_is_said_that_the_exporters_get_none(tmp_path: Path) -> None:
    record(tmp_path, ("--to", "jsonl,mlflow"))
    (tmp_path / "runs" / "exp" / "one" / "state" / "served.json").unlink()

    done = attach(tmp_path)

    assert done.returncode == 0, done.stderr
    assert "What options the exporters of run 'one' had is not known" in done.stderr
    assert reports(tmp_path / "runs" / "mlflow.db") == [["artifacts/report/report.html"]]
