"""The report of a run that is over becomes an artifact in the run's own backends."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.jobs import environment, the_run_in

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

TRAIN = """
import otel_ml
with otel_ml.init("reported", exporters="jsonl,mlflow"):
    for step in otel_ml.steps(range(3)):
        otel_ml.log({"loss": 1.0})
    raise SystemExit(3)
"""


def test_an_attached_report_is_in_every_backend_and_the_run_ended_as_it_did(tmp_path: Path) -> None:
    # An id that no folder can have: backends know the run by it, and must not get a second one.
    env = environment(XDG_RUNTIME_DIR=tmp_path, OTEL_ML_DIR=tmp_path / "runs", OTEL_ML_EXPERIMENT_ID="sweep/7")
    subprocess.run([sys.executable, "-c", TRAIN], env=env, cwd=tmp_path, timeout=60, check=False)
    run = the_run_in(tmp_path / "runs")  # its service may outlive the training, and even begin after its end
    command = [sys.executable, "-m", "otel_ml_service", "report", "latest", "--attach", "--json"]

    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=200, check=False)

    assert done.returncode == 0, done.stderr
    assert "artifact 'report'" in done.stderr
    told = json.loads(done.stdout)
    [attached] = told["runs"]
    assert (attached["experiment"], sorted(attached["attached_to"])) == ("reported", ["jsonl", "mlflow"])
    page = Path(told["file"]).read_bytes()
    assert (run / "artifacts" / "report" / "report.html").read_bytes() == page
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    kinds = [row.get("status", row.get("type")) for row in rows if row.get("type") in {"status", "artifact"}]
    assert kinds[-4:] == ["failed", "running", "artifact", "failed"]
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{tmp_path / 'runs' / 'mlflow.db'}")
    [experiment] = [one for one in client.search_experiments() if one.name == "reported"]
    [stored] = client.search_runs([experiment.experiment_id])
    assert stored.info.status == "FAILED"
    local = client.download_artifacts(stored.info.run_id, "artifacts/report/report.html", str(tmp_path))
    assert Path(local).read_bytes() == page
