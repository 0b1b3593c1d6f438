"""The pods of a job of deploy/kubernetes, started by what the manifest says, are the ranks of one run."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

import otel_ml
from tests.collector.kubernetes import Pods, up
from tests.collector.kubernetes_jobs import Job, image_with, job_set, train_job
from tests.collector.pipeline import experiment_of
from tests.collector.test_compose import asked
from tests.collector.test_kubernetes import is_delivered
from tests.deployment.golden import GOLDEN
from tests.e2e.jobs import ROOT, the_run_in, until
from tests.fakes.kubeflow_trainer import StatusServer

pytestmark = [pytest.mark.e2e, pytest.mark.full, pytest.mark.timeout(600)]

KUBERNETES = ROOT / "deploy" / "kubernetes"
TOKEN = "a-token"
STEPS = 20

TRAIN = f"""
import os, pathlib, signal, sys, time
import otel_ml

with otel_ml.init("digits", params={{"max_steps": {STEPS}}}) as run:
    rank = int(os.environ["RANK"])
    for step in otel_ml.steps(range({STEPS})):
        otel_ml.log({{"ranks": 1.0, "places": 10.0**rank}}, reduce="sum")
        if step == 10 and "FAILS_ONCE" in os.environ and rank == 1:
            otel_ml.flush()
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.05)  # the work of a step
"""


def resources(name: str) -> list[Mapping[str, Any]]:
    return [found for found in yaml.safe_load_all((KUBERNETES / f"{name}.yaml").read_text()) if found]


def the(kind: str, name: str) -> Mapping[str, Any]:
    [found] = [one for one in resources(name) if one["kind"] == kind]
    return found


@pytest.fixture
def image(tmp_path: Path) -> Path:
    return image_with(tmp_path / "image", TRAIN)


@pytest.fixture
def uid(tmp_path: Path) -> str:
    return experiment_of(tmp_path)


@pytest.fixture
def chart(tmp_path: Path) -> Iterator[Pods]:
    with up(tmp_path, (GOLDEN / "default.yaml").read_text()) as pods:
        yield pods


def assert_one_run_has_all_of(ranks: int, pods: Pods, uid: str) -> None:
    service = f"http://127.0.0.1:{pods.port('4318')}"
    until(lambda: is_delivered(asked(service, uid, TOKEN)), seconds=180)
    assert asked(service, uid, TOKEN)["status"] == "finished"
    [run] = (pods.folder / "otel-ml-service" / "runs").glob("digits/*/metrics.jsonl")

    assert run.parent.name == uid
    assert_all_ranks_are_in(run.parent, ranks)


def assert_all_ranks_are_in(run: Path, ranks: int) -> None:
    read = otel_ml.read(run)

    assert tuple(map(list, read["ranks"])) == (list(range(STEPS)), [ranks] * STEPS)
    assert tuple(map(list, read["places"])) == (list(range(STEPS)), [int("1" * ranks)] * STEPS)


def run_to_its_end(job: Job, image: Path, pods: Pods, uid: str, **more: str) -> None:
    with job.started(image, pods, uid, **more) as running:
        codes = [pod.wait(timeout=200) for pod in running]
    assert codes == [0] * job.size, said(pods)


def the_collector(text: str) -> Mapping[str, Any]:
    [found] = yaml.safe_load_all(text)
    return dict(found)


def as_the_operator_makes_it(collector: Mapping[str, Any]) -> str:
    """Return what the OpenTelemetry operator makes of a Collector: names, files and probes are its own."""
    name, spec = collector["metadata"]["name"], collector["spec"]
    assert spec["mode"] == "statefulset"
    probe = {"httpGet": {"port": "health", "path": "/"}}
    container = {
        "args": ["--config=/conf/collector.yaml"],
        "env": spec["env"],
        "ports": [{"name": "health", "containerPort": 13133}],
        "volumeMounts": [*spec["volumeMounts"], {"name": "otc-internal", "mountPath": "/conf"}],
        "readinessProbe": probe,
        "livenessProbe": probe,
    }
    pod = {
        "containers": [container],
        "volumes": [{"name": "otc-internal", "configMap": {"name": f"{name}-collector"}}],
    }
    made = [
        {"kind": "ConfigMap", "data": {"collector.yaml": yaml.safe_dump(spec["config"])}},
        {"kind": "Service"},
        {
            "kind": "StatefulSet",
            "spec": {"template": {"spec": pod}, "volumeClaimTemplates": spec["volumeClaimTemplates"]},
        },
    ]
    return "".join(f"---\n{yaml.safe_dump({**one, 'metadata': {'name': f'{name}-collector'}})}" for one in made)


def said(pods: Pods) -> str:
    return "\n".join(log.read_text() for log in sorted(pods.folder.glob("job-*/log")))


@pytest.mark.parametrize("name", ["jobset", "kueue"])
def test_the_pods_of_a_job_set_are_ranks_of_one_run(name: str, image: Path, chart: Pods, uid: str) -> None:
    run_to_its_end(job_set(the("JobSet", name)), image, chart, uid)

    assert_one_run_has_all_of(2, chart, uid)


def test_a_job_set_that_is_started_again_goes_on_in_its_run(image: Path, chart: Pods, uid: str) -> None:
    job = job_set(the("JobSet", "jobset"))
    with job.started(image, chart, uid, FAILS_ONCE="1") as running:
        until(lambda: running[1].poll() is not None, seconds=200)  # JobSet then deletes the pods that are left
    run_to_its_end(job, image, chart, uid)

    assert_one_run_has_all_of(2, chart, uid)


def test_the_processes_of_a_train_job_are_ranks_of_one_run(image: Path, chart: Pods, uid: str) -> None:
    run_to_its_end(train_job(the("TrainJob", "trainjob"), processes=2), image, chart, uid)

    assert_one_run_has_all_of(4, chart, uid)


def test_without_a_service_the_pods_of_a_train_job_show_how_far_they_are_in_its_status(
    image: Path, tmp_path: Path, uid: str
) -> None:
    """As its first lines say: without the endpoint, with the exporter `kubeflow`, and with a folder they share."""
    trainer = the("TrainJob", "trainjob")
    without = [one for one in trainer["spec"]["trainer"]["env"] if one["name"] != "OTEL_EXPORTER_OTLP_ENDPOINT"]
    trainer["spec"]["trainer"]["env"] = without
    pods = Pods(tmp_path, (GOLDEN / "default.yaml").read_text())
    volume = tmp_path / "volume"
    volume.mkdir()
    server = StatusServer(volume)
    said = {"OTEL_ML_EXPORTERS": "jsonl,kubeflow", "OTEL_ML_DIR": str(tmp_path / "shared"), **server.environment}
    try:
        run_to_its_end(train_job(trainer, processes=1), image, pods, uid, **said)
        run = the_run_in(tmp_path / "shared")
    finally:
        server.close()

    assert run.name == uid
    assert_all_ranks_are_in(run, 2)
    assert server.status["progressPercentage"] == 100


def test_a_job_goes_through_the_gateway_that_the_operator_starts(image: Path, tmp_path: Path, uid: str) -> None:
    text = (KUBERNETES / "opentelemetry-operator.yaml").read_text()
    [address] = re.findall(r"^#.*(http://\S+:\d+)", text, re.MULTILINE)
    manifests = (GOLDEN / "service-alone.yaml").read_text() + as_the_operator_makes_it(the_collector(text))
    with up(tmp_path, manifests) as pods:
        endpoint = {"OTEL_EXPORTER_OTLP_ENDPOINT": pods.here(address, {})}
        run_to_its_end(job_set(the("JobSet", "jobset")), image, pods, uid, **endpoint)
        [_, gateway] = pods.pods
        gateway.stop()
        gateway.start()

        assert_one_run_has_all_of(2, pods, uid)
