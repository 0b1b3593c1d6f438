"""`wandb.sdk.wandb_run`: the class of a run."""

from __future__ import annotations

from typing import Any

from otel_ml.compat.tracking.original_names import name_of_the_original
from otel_ml.compat.wandb.module_functions import finish
from otel_ml.compat.wandb.recording_run import Run

__all__ = ["Run", "finish"]


def __getattr__(name: str) -> Any:
    """Return what W&B's own module calls so, where its package is installed."""
    return name_of_the_original("wandb.sdk.wandb_run", name, is_of_the_server=False)
