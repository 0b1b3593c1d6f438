from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from otel_ml.testing import Capture, capture


@pytest.fixture(autouse=True)
def folder_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Have files that the originals write into the working directory, and so do we, in the test's folder."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture(autouse=True)
def nothing_chosen_by_another_test() -> Iterator[None]:
    """Forget which experiment, server and exporters a test has chosen: they are the process's, no later test's."""
    yield
    if "otel_ml.compat.mlflow" in sys.modules:
        from otel_ml.compat import mlflow
        from otel_ml.compat.mlflow.open_runs import STATE

        mlflow.set_experiment("")
        STATE.write_to(None, {})
        STATE.uri = ""


@pytest.fixture
def captured_wandb() -> Iterator[Capture]:
    """What is recorded in a run of the W&B layer."""
    from otel_ml.compat import wandb

    with capture() as run:
        wandb.init()
        yield run
        wandb.finish()
