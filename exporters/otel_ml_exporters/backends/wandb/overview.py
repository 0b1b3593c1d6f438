"""What a run was started from → what the overview of W&B's page shows: command, host, user, Git, Python."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from otel_ml_exporters.records import JsonValue

__all__ = ["publish_overview"]


def publish_overview(run: Any, params: Mapping[str, JsonValue]) -> None:
    """Tell W&B what the worker captured (`OTEL_ML_CAPTURE`): its own look would find the service.

    W&B has no public call for it; where a version has none of this name either, the config has the same.

    Args:
        run: `wandb.Run`.
        params: as they came.
    """
    facts = params.get("otel_ml")
    if not isinstance(facts, Mapping) or not isinstance(facts.get("program"), str):
        return
    with contextlib.suppress(AttributeError, ImportError, TypeError, ValueError):
        from wandb.proto import wandb_internal_pb2

        environment = wandb_internal_pb2.EnvironmentRecord(**_fields(facts))
        run._interface.publish_environment(environment)  # noqa: SLF001 (the only way there is)


def _fields(facts: Mapping[str, JsonValue]) -> dict[str, Any]:
    git = facts.get("git")
    of_git = git if isinstance(git, Mapping) else {}
    found: dict[str, Any] = {
        "program": facts.get("program"),
        "code_path": facts.get("program"),
        "args": facts.get("arguments"),
        "executable": facts.get("executable"),
        "python": facts.get("python"),
        "os": facts.get("os"),
        "host": facts.get("host"),
        "username": facts.get("user"),
        "root": facts.get("working_directory"),
        "git": {"remote_url": of_git.get("remote", ""), "commit": of_git.get("commit", "")} if of_git else None,
    }
    return {key: value for key, value in found.items() if value}
