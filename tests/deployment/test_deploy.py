"""deploy/: the chart renders what is kept as golden files, and everything in it is what Kubernetes takes."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deployment.golden import CHART, GOLDEN, RENDERED, TOOLS, operator_example, rendered
from tests.docs.page import blocks_of
from tests.e2e.jobs import ROOT

KUBERNETES = ROOT / "deploy" / "kubernetes"
EXAMPLES = [KUBERNETES / f"{name}.yaml" for name in ("jobset", "trainjob", "kueue")]

needs_tools = pytest.mark.full
"""Where `.ci/kubernetes` has brought them."""


def resources(text: str) -> list[dict[str, Any]]:
    return [found for found in yaml.safe_load_all(text) if found]


def pods_of(text: str) -> list[dict[str, Any]]:
    kinds = {"StatefulSet", "DaemonSet"}
    return [found["spec"]["template"]["spec"] for found in resources(text) if found["kind"] in kinds]


@needs_tools
@pytest.mark.parametrize("name", RENDERED)
def test_the_chart_renders_what_is_kept(name: str) -> None:
    assert rendered(*RENDERED[name]) == (GOLDEN / f"{name}.yaml").read_text(), "python -m tests.deployment.golden"


@needs_tools
@pytest.mark.parametrize(
    "path", [*(GOLDEN / f"{name}.yaml" for name in RENDERED), *EXAMPLES], ids=lambda path: path.stem
)
def test_kubernetes_knows_each_field(path: Path) -> None:
    assert checked(path.read_text()) == ""


@needs_tools
def test_a_field_that_kubernetes_does_not_know_is_found() -> None:
    wrong = (GOLDEN / "default.yaml").read_text().replace("serviceName:", "servicName:")

    assert "servicName" in checked(wrong)


def checked(manifests: str) -> str:
    """Return what kubeconform finds wrong; the schema of a ServiceMonitor is in no package."""
    location = f"{TOOLS}/schemas/{{{{.ResourceKind}}}}{{{{.KindSuffix}}}}.json"
    command = [TOOLS / "kubeconform", "-strict", "-schema-location", location, "-skip", "ServiceMonitor", "-"]
    return subprocess.run(command, input=manifests, capture_output=True, text=True, check=False).stdout


@needs_tools
def test_helm_finds_nothing_and_a_value_that_is_not_there_is_refused() -> None:
    lint = [TOOLS / "helm", "lint", "--strict", CHART, "--set", "token=a"]
    assert subprocess.run(lint, capture_output=True, check=False).returncode == 0
    for wrong in (("--set", "token=a,agent.folder=/x"), (), ("--set", "token=a,gateway.enabled=false")):
        with pytest.raises(AssertionError, match=r"folder|Set token|needs gateway"):
            rendered(*wrong)


def test_what_the_deployment_page_installs_is_what_is_kept() -> None:
    ours = "tests/deployment/test_deploy.py"
    [line] = [block.code for block in blocks_of(ROOT / "docs/deployment.md") if block.argument == ours]

    assert line.split() == ["helm", "install", "otel-ml", str(CHART.relative_to(ROOT)), *RENDERED["default"]]


@pytest.mark.parametrize("name", RENDERED)
def test_no_container_runs_as_root_or_may_write_outside_of_its_volumes(name: str) -> None:
    for pod in pods_of((GOLDEN / f"{name}.yaml").read_text()):
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["automountServiceAccountToken"] is False
        for container in pod["containers"]:
            security = container["securityContext"]
            assert (security["readOnlyRootFilesystem"], security["allowPrivilegeEscalation"]) == (True, False)
            assert {"startupProbe", "livenessProbe", "readinessProbe", "resources"} <= set(container)


def test_with_certificates_every_hop_has_tls_and_without_a_token_nothing_is_sent() -> None:
    for pod in pods_of((GOLDEN / "secure.yaml").read_text()):
        [container] = pod["containers"]
        assert any(mount["mountPath"] == "/etc/otel-ml-tls" for mount in container["volumeMounts"])
        if "args" in container:
            assert "/etc/otel-ml/secure.yaml" in container["args"]
            assert container["env"][0]["valueFrom"]["secretKeyRef"] == {"name": "team-token", "key": "token"}
    [monitor] = [one for one in resources((GOLDEN / "secure.yaml").read_text()) if one["kind"] == "ServiceMonitor"]
    [endpoint] = monitor["spec"]["endpoints"]
    assert (endpoint["scheme"], endpoint["authorization"]["credentials"]["name"]) == ("https", "team-token")


def test_the_operators_example_has_the_gateways_configuration() -> None:
    assert (KUBERNETES / "opentelemetry-operator.yaml").read_text() == operator_example()


@pytest.mark.parametrize("name", ["jobset", "trainjob"])
def test_a_job_sends_to_its_node_with_the_token_of_the_chart(name: str) -> None:
    [job] = resources((KUBERNETES / f"{name}.yaml").read_text())
    trainer = (
        job["spec"].get("trainer")
        or job["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"][0]
    )
    environ = {one["name"]: one.get("value", one.get("valueFrom")) for one in trainer["env"]}
    ports = [port for pod in pods_of((GOLDEN / "default.yaml").read_text()) for port in pod["containers"][0]["ports"]]

    assert environ["OTEL_EXPORTER_OTLP_ENDPOINT"] == "http://$(HOST_IP):24318"
    assert {"name": "http", "containerPort": 24318, "hostPort": 24318} in ports
    assert environ["OTEL_ML_TOKEN"]["secretKeyRef"] == {"name": "otel-ml-token", "key": "token"}


def test_kueue_has_the_job_set_of_its_own_example_in_a_queue_with_a_quota() -> None:
    [job] = resources((KUBERNETES / "jobset.yaml").read_text())
    flavor, cluster_queue, queue, queued = resources((KUBERNETES / "kueue.yaml").read_text())
    label = queued["metadata"].pop("labels")
    [group] = cluster_queue["spec"]["resourceGroups"]

    assert queued == job
    assert label == {"kueue.x-k8s.io/queue-name": queue["metadata"]["name"]}
    assert queue["spec"]["clusterQueue"] == cluster_queue["metadata"]["name"]
    assert [one["name"] for one in group["flavors"]] == [flavor["metadata"]["name"]]
