"""verl's names of backends, and the exporters that write there."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from otel_ml.compat.tracking.not_kept import not_kept
from otel_ml.compat.tracking.own_backend import with_exporters_of_the_job

__all__ = ["CONSOLE", "EXPORTERS", "FILE", "RL_INSIGHT", "SUPPORTED", "exporters", "say_what_is_set_elsewhere"]

CONSOLE = "console"
FILE = "file"
RL_INSIGHT = "rl_insight"

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
    RL_INSIGHT,
)
"""verl's own list; of these `vemlp_wandb`, `clearml` and `rl_insight` have no exporter."""

_NOT_READ = {
    "MLFLOW_RUN_ID": ("mlflow", "the run has an id of its own; otel_ml.init(id=…) goes on with a run."),
    "SWANLAB_LOG_DIR": ("swanlab", "the run is below OTEL_ML_DIR."),
    "SWANLAB_MODE": ("swanlab", "the run is written as an offline one; `swanlab sync` uploads it."),
    "TENSORBOARD_DIR": ("tensorboard", "the run is below OTEL_ML_DIR."),
}
"""Variable that verl reads → its backend, and what holds here."""


def exporters(chosen: Sequence[str]) -> tuple[str, ...] | None:
    """Return the exporters for verl's backends and those of the job.

    The file is always there: it is what `otel-ml replay` starts from.
    """
    found = [EXPORTERS[backend] for backend in chosen if backend in EXPORTERS]
    return with_exporters_of_the_job([*found, "jsonl"]) if found else None


def say_what_is_set_elsewhere(chosen: Sequence[str], config: Any) -> None:
    """Say which variables of verl's, and which key of its configuration, have no meaning for the chosen backends."""
    for variable, (backend, instead) in _NOT_READ.items():
        value = os.environ.get(variable)
        # The exporter writes SwanLab's runs offline anyway, so this value asks for what is done.
        if backend in chosen and value and (variable, value) != ("SWANLAB_MODE", "offline"):
            not_kept(f"Tracking({variable}={value!r:.80})", instead)
    if {"wandb", "tracking"} & set(chosen) and _wandb_proxy(config):
        not_kept("Tracking(config=…) with trainer.wandb_proxy", "set HTTPS_PROXY where the service runs.")


def _wandb_proxy(config: Any) -> Any:
    try:
        return config["trainer"]["wandb_proxy"]
    except Exception:  # noqa: BLE001 (a configuration of any form, or none)
        return None
