"""Which experiment an id is of: the id of an experiment is its name, and an id of MLflow's own is of none here."""

from __future__ import annotations

import os

from otel_ml.compat.mlflow.active_run import Facts
from otel_ml.compat.tracking.not_kept import not_kept
from otel_ml.config import Config

__all__ = ["CREATED", "experiment_of_environment", "experiment_of_id", "has_runs"]

CREATED: dict[str, Facts] = {}
"""The experiments that this process has created or named."""


def has_runs(name: str) -> bool:
    """Whether there is such an experiment in `OTEL_ML_DIR`."""
    return bool(name) and (Config.from_env(os.environ).dir / name).is_dir()


def experiment_of_id(given: str | None, said_by: str) -> str | None:
    """Return the experiment of an id that `said_by` has; MLflow's own default is `0`."""
    # `0` is the experiment `Default` of every store of MLflow: who passes it on has chosen none.
    if given in {None, "", "0"}:
        return None
    name = str(given)
    if name not in CREATED and not has_runs(name):
        wrong = f"MlflowException: No experiment with id {name!r} exists here, where an experiment's id is its name"
        not_kept(said_by, f"{wrong}. The run is in an experiment of this name.")
    return name


def experiment_of_environment() -> str | None:
    """Return the experiment that MLflow's variables name; where they disagree, the name counts."""
    name, given = os.environ.get("MLFLOW_EXPERIMENT_NAME"), os.environ.get("MLFLOW_EXPERIMENT_ID")
    if not name:
        return experiment_of_id(given, f"MLFLOW_EXPERIMENT_ID={given}")
    if given and given != name:
        wrong = f"MlflowException: {given!r} does not match the experiment id of {name!r}, which is its name"
        not_kept(f"MLFLOW_EXPERIMENT_ID={given}", f"{wrong}. MLFLOW_EXPERIMENT_NAME counts.")
    return name
