"""What the chart of deploy/helm starts takes a job of deploy/kubernetes to a run, also over a restart of each part."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.collector.everything_once import assert_everything_is_there_once
from tests.collector.kubernetes import job_environment, up
from tests.collector.pipeline import experiment_of, ranks, training
from tests.collector.test_compose import asked
from tests.deployment.golden import GOLDEN
from tests.e2e.jobs import ROOT, until

pytestmark = [pytest.mark.e2e, pytest.mark.full, pytest.mark.timeout(900)]

JOBSET = yaml.safe_load((ROOT / "deploy" / "kubernetes" / "jobset.yaml").read_text())


def test_a_job_set_goes_through_everything_that_the_chart_starts(tmp_path: Path) -> None:
    experiment = experiment_of(tmp_path)
    [container] = JOBSET["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"]
    with up(tmp_path, (GOLDEN / "default.yaml").read_text()) as pods:
        said = job_environment(pods, container, **{"jobset-uid": experiment, "job-completion-index": "0"})
        endpoint, token = said.pop("OTEL_EXPORTER_OTLP_ENDPOINT"), said["OTEL_ML_TOKEN"]
        assert endpoint == f"http://127.0.0.1:{pods.port('24318')}"
        commands = ranks(tmp_path, endpoint, seed=5, roles={"trainer": 2}, steps=10, pause=0.02, **said)
        with training(commands, tmp_path):
            for pod in pods.pods:
                pod.stop()
                pod.start()
        service = f"http://127.0.0.1:{pods.port('4318')}"
        until(lambda: is_delivered(asked(service, experiment, token)), seconds=180)

    [run] = (tmp_path / "otel-ml-service" / "runs").glob(f"*/{experiment}")
    assert_everything_is_there_once(tmp_path, run, ("jsonl", "tensorboard"))


def is_delivered(account: dict[str, object]) -> bool:
    exporters = account.get("exporters")
    if account.get("status") in {None, "running"} or not isinstance(exporters, dict) or len(exporters) != 2:
        return False
    return all(one["delivered_seq"] == account["last_seq"] for one in exporters.values())
