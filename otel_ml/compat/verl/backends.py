"""verl's names of backends, and the exporters that write there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from otel_ml.compat.tracking.own_backend import with_exporters_of_the_job

__all__ = ["CONSOLE", "EXPORTERS", "FILE", "SUPPORTED", "exporters"]

CONSOLE = "console"
FILE = "file"

EXPORTERS: Mapping[str, str] = {
    FILE: "jsonl",
    "mlflow": "mlflow",
    "swanlab": "swanlab",
    "tensorboard": "tensorboard",
    "trackio": "trackio",
    "tracking": "wandb",
    "wandb": "wandb",
}
"""Backends of verl, and the exporter that writes there; `console` is a line that this process prints."""

SUPPORTED = (
    "wandb",
    "mlflow",
    "swanlab",
    "vemlp_wandb",
    "tensorboard",
    "console",
    "clearml",
    "trackio",
    "file",
    "rl_insight",
)
"""verl's own list; of these `vemlp_wandb`, `clearml` and `rl_insight` have no exporter."""


def exporters(chosen: Sequence[str]) -> tuple[str, ...] | None:
    """Return the exporters for verl's backends and those of the job.

    The file is always there: it is what `otel-ml replay` starts from.
    """
    found = [EXPORTERS[backend] for backend in chosen if backend in EXPORTERS]
    return with_exporters_of_the_job([*found, "jsonl"]) if found else None
