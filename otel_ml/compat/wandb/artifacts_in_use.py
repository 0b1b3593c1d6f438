"""`use_artifact()`: what this run has logged itself, and what W&B has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from otel_ml.compat.wandb.artifact import Artifact
from otel_ml.compat.wandb.errors import CommError

__all__ = ["used"]


def used(
    artifact_or_name: Any,
    logged: Sequence[Artifact],
    kind: str | None,
    *,
    is_offline: bool,
) -> Any:
    """Return the artifact: as given, the one of that name logged last, or that of W&B's server.

    Raises:
        CommError: there is no such artifact here, and W&B cannot be asked.
    """
    if not isinstance(artifact_or_name, str):
        return artifact_or_name
    name = artifact_or_name.rpartition("/")[2].partition(":")[0]
    own = [artifact for artifact in logged if artifact.name == name]
    if own:
        return own[-1]
    if is_offline:
        raise CommError(f"This run has logged no artifact {name!r}, and is offline: W&B is not asked.")
    try:
        import wandb
    except ImportError:
        raise CommError(f"This run has logged no artifact {name!r}; W&B's are read by the package 'wandb'.") from None
    return wandb.Api().artifact(artifact_or_name, kind)
