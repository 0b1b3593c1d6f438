"""What a run was started from → the tags that MLflow's lists show as Source, User and Version."""

from __future__ import annotations

from collections.abc import Mapping

from otel_ml_exporters.records import JsonValue

__all__ = ["source_tags"]

_TAGS = {
    "mlflow.source.name": ("program",),
    "mlflow.user": ("user",),
    "mlflow.source.git.commit": ("git", "commit"),
    "mlflow.source.git.branch": ("git", "branch"),
    "mlflow.source.git.repoURL": ("git", "remote"),
}
_MAX_TAG_VALUE = 8000


def source_tags(params: Mapping[str, JsonValue]) -> dict[str, str]:
    """Return MLflow's own tags of what the worker captured (`OTEL_ML_CAPTURE`), as far as it did.

    Examples:
        >>> source_tags({"otel_ml": {"program": "train.py", "git": {"commit": "4f1c"}}, "lr": 0.1})
        {'mlflow.source.name': 'train.py', 'mlflow.source.git.commit': '4f1c', 'mlflow.source.type': 'LOCAL'}
    """
    found: dict[str, str] = {}
    for tag, path in _TAGS.items():
        value: object = params.get("otel_ml")
        for key in path:
            value = value.get(key) if isinstance(value, Mapping) else None
        if isinstance(value, str) and value:
            found[tag] = value[:_MAX_TAG_VALUE]
    return {**found, "mlflow.source.type": "LOCAL"} if found else {}
