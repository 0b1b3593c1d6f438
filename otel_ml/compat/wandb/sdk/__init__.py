"""`wandb.sdk`: what type annotations and `isinstance` of training scripts name; all else is W&B's own."""

from __future__ import annotations

from typing import Any

from otel_ml.compat.tracking.original_names import name_of_the_original
from otel_ml.compat.wandb.artifact import Artifact
from otel_ml.compat.wandb.parameters import Config
from otel_ml.compat.wandb.sdk import wandb_run
from otel_ml.compat.wandb.start import Settings, init

__all__ = ["Artifact", "Config", "Settings", "init", "wandb_run"]


def __getattr__(name: str) -> Any:
    """Return what W&B's own module calls so, where its package is installed."""
    return name_of_the_original("wandb.sdk", name, is_of_the_server=False)
