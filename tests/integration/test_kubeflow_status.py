"""A job in a pod of a TrainJob, as its controller makes it: nothing is configured but the exporter's name."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.page import blocks_of
from tests.e2e.jobs import ROOT
from tests.fakes.kubeflow_trainer import StatusServer
from tests.integration.worker_process import environment, run
from tests.waiting import eventually

[JOB] = [block.code for block in blocks_of(ROOT / "docs/exporters/kubeflow.md") if block.marker == "run by"]


@pytest.mark.timeout(150)
def test_the_status_of_a_train_job_is_the_end_of_its_run(tmp_path: Path) -> None:
    server = StatusServer(tmp_path)
    try:
        run(JOB, environment(tmp_path, server.environment), tmp_path)
        eventually(lambda: server.status.get("progressPercentage") == 100, timeout=60)
    finally:
        server.close()

    metrics = {metric["name"]: metric["value"] for metric in server.status["metrics"]}
    assert metrics["loss"] == "0.01"
    assert not any(name.startswith("otel_ml/") for name in metrics)
    assert server.taken <= 3  # of 100 steps that took a moment
