"""What a person sees in MLflow, on the page that `otel-ml open` leads to."""

from __future__ import annotations

import pytest

from tests.browser.job import HOSTILE, STEPS, loss_at
from tests.browser.page import Page

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
