"""What a person sees in MLflow, on the page that `otel-ml open` leads to."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.browser.job import HOSTILE, STEPS, loss_at
from tests.browser.page import Page
from tests.e2e.jobs import environment

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

LAST = {
    "loss": sum(loss_at(STEPS - 1, rank) for rank in range(2)) / 2,
    "loss/min": loss_at(STEPS - 1, 0),
    "loss/max": loss_at(STEPS - 1, 1),
    "tokens": 1024,
    "eval/accuracy": 0.89,
    "final/accuracy": 0.89,
}
SIZE = (1500, 1800)


def test_open_leads_to_the_page_of_the_run_with_its_parameters_and_last_values(page: Page, mlflow: str) -> None:
    page.open(mlflow, size=SIZE)

    page.shows("looked-at", "Finished", "What a person looks at.", "learning_rate", "model.width", "128", HOSTILE)
    shown = page.until(lambda: LAST.keys() <= set(lines := page.text.splitlines()) and lines)
    found = {name: shown[shown.index(name) + 1] for name in LAST}
    page.picture("mlflow-run")
    assert {name: float(value) for name, value in found.items()} == LAST


def test_metrics_are_drawn(page: Page, mlflow: str) -> None:
    page.open(mlflow.replace("?", "/model-metrics?"), size=SIZE)

    page.shows("looked-at (loss/min)", "looked-at (loss/max)", "looked-at (eval/accuracy)", "time", "Model metrics")
    page.until(lambda: page.count(".js-plotly-plot .js-line") >= 3)
    page.picture("mlflow-metrics")


def test_artifacts_are_a_tree(page: Page, mlflow: str) -> None:
    page.open(mlflow.replace("?", "/artifacts?"), size=SIZE)

    page.shows("artifacts", "histograms", "images", "tables", "texts")
    page.picture("mlflow-artifacts")


def test_spans_are_traces_of_the_run(page: Page, mlflow: str, run: Path, tmp_path: Path) -> None:
    server, config = mlflow.partition("/#")[0], tmp_path / "otel-ml.yaml"
    config.write_text(f"exporters: {{traces: {{endpoint: '{server}', mlflow: true}}}}")
    command = [sys.executable, "-m", "otel_ml_service", "replay", str(run), "--to", "traces", "--config", str(config)]
    subprocess.run(command, env=environment(), check=True, timeout=300)

    page.open(mlflow.replace("?", "/traces?"), size=SIZE)

    page.shows(f"{2 * STEPS} of {2 * STEPS}", "Trace ID", "OK")  # a trace for each step of each rank
    page.picture("mlflow-traces")
