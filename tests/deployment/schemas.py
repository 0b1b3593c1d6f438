"""JSON schemas for kubeconform, from the packages that `.ci/kubernetes` has put into a folder: the argument."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

__all__ = ["main"]

_MODELS = {
    "kubernetes.client.models": {
        "configmap-v1": "V1ConfigMap",
        "daemonset-apps-v1": "V1DaemonSet",
        "networkpolicy-networking-v1": "V1NetworkPolicy",
        "secret-v1": "V1Secret",
        "service-v1": "V1Service",
        "statefulset-apps-v1": "V1StatefulSet",
    },
    "kubeflow_trainer_api.models": {
        "jobset-jobset-v1alpha2": "JobsetV1alpha2JobSet",
        "trainjob-trainer-v1alpha1": "TrainerV1alpha1TrainJob",
    },
}
_KUEUE = ("clusterqueues", "localqueues", "resourceflavors")


def main(folder: Path) -> None:
    """Write the schemas into `folder`/schemas, named as kubeconform asks for them."""
    to = folder / "schemas"
    to.mkdir(exist_ok=True)
    for package, models in _MODELS.items():
        module = importlib.import_module(package)
        for name, model in models.items():
            _write(to / f"{name}.json", _closed(getattr(module, model).model_json_schema()))
    for plural in _KUEUE:
        resource = yaml.safe_load((folder / "kueue" / f"kueue.x-k8s.io_{plural}.yaml").read_text())["spec"]
        for version in resource["versions"]:
            name = f"{resource['names']['singular']}-kueue-{version['name']}"
            _write(to / f"{name}.json", _closed(version["schema"]["openAPIV3Schema"]))


def _closed(schema: Any) -> Any:
    """Return a schema in which an object with known properties has no others."""
    if isinstance(schema, list):
        return [_closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {key: _closed(value) for key, value in schema.items()}
    is_open = closed.get("x-kubernetes-preserve-unknown-fields") or isinstance(closed.get("additionalProperties"), dict)
    if closed.get("type") == "object" and isinstance(closed.get("properties"), dict) and not is_open:
        closed["additionalProperties"] = False
    return closed


def _write(path: Path, schema: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(schema, indent=1))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
