"""What is rendered or merged for Kubernetes, and kept: `python -m tests.deployment.golden` writes it."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.e2e.jobs import ROOT

__all__ = ["CHART", "GOLDEN", "RENDERED", "TOOLS", "merged", "operator_example", "rendered"]

CHART = ROOT / "deploy" / "helm" / "otel-ml"
GOLDEN = Path(__file__).with_name("golden")
TOOLS = ROOT / ".cache" / "kubernetes"

RENDERED: Mapping[str, tuple[str, ...]] = {
    "default": ("--set", "token=a-token"),
    "service-alone": ("--set", "token=a-token,gateway.enabled=false,agent.enabled=false,networkPolicy.enabled=false"),
    "secure": (
        "--set",
        "existingSecret=team-token,tls.existingSecret=team-tls,serviceMonitor.enabled=true",
        "--set",
        "networkPolicy.fromNamespaces={jobs,monitoring}",
    ),
}
"""Name of a golden file → options of helm."""

_OPERATOR = """\
# The gateway by the OpenTelemetry operator, in place of the chart's (gateway.enabled=false, agent.enabled=false).
# Its configuration is collector-config/gateway.yaml with token.yaml; its queue is a volume, and survives. A job has no
# agent on its node then: it sends to the Service that the operator makes, http://otel-ml-gateway-collector:14318.
"""


def rendered(*options: str, chart: Path = CHART) -> str:
    """Return what helm makes of the chart."""
    command = [TOOLS / "helm", "template", "otel-ml", chart, "--kube-version", "1.34.0", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def operator_example() -> str:
    """Return a resource of the OpenTelemetry operator with the gateway's configuration."""
    parts = [yaml.safe_load((ROOT / "collector-config" / f"{name}.yaml").read_text()) for name in ("gateway", "token")]
    token = {"name": "OTEL_ML_TOKEN", "valueFrom": {"secretKeyRef": {"name": "otel-ml-token", "key": "token"}}}
    said = {
        "OTEL_ML_SERVICE": "otel-ml-service:4317",
        "OTEL_ML_QUEUE": "/queue",
        "OTEL_ML_GATEWAY_GRPC": "0.0.0.0:14317",
        "OTEL_ML_GATEWAY_HTTP": "0.0.0.0:14318",
        "OTEL_ML_GATEWAY_HEALTH": "0.0.0.0:13133",
    }
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "10Gi"}}}
    resource = {
        "apiVersion": "opentelemetry.io/v1beta1",
        "kind": "OpenTelemetryCollector",
        "metadata": {"name": "otel-ml-gateway"},
        "spec": {
            "mode": "statefulset",
            "replicas": 1,
            "image": f"otel/opentelemetry-collector-contrib:{_version()}",
            "env": [token, *({"name": name, "value": value} for name, value in said.items())],
            "podSecurityContext": {"fsGroup": 10001},
            "volumeMounts": [{"name": "queue", "mountPath": "/queue"}],
            "volumeClaimTemplates": [{"metadata": {"name": "queue"}, "spec": claim}],
            "config": merged(*parts),
        },
    }
    return _OPERATOR + yaml.safe_dump(resource, sort_keys=False, width=120)


def merged(first: Any, *others: Any) -> Any:
    """Merge configurations as the Collector does: mappings by key, of anything else the last counts."""
    for other in others:
        if not isinstance(first, dict) or not isinstance(other, dict):
            first = other
        else:
            keys = [*first, *(key for key in other if key not in first)]
            first = {
                key: merged(first[key], other[key]) if key in first and key in other else first.get(key, other.get(key))
                for key in keys
            }
    return first


def _version() -> str:
    line = next(line for line in (ROOT / "Dockerfile").read_text().splitlines() if "collector-contrib:" in line)
    return line.partition("collector-contrib:")[2].split()[0]


if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    for name, options in RENDERED.items():
        (GOLDEN / f"{name}.yaml").write_text(rendered(*options))
    (ROOT / "deploy" / "kubernetes" / "opentelemetry-operator.yaml").write_text(operator_example())
