"""Experiments: the name is the id, and an experiment begins with its first run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import otel_ml
from otel_ml._internal.safe_repr import text_of
from otel_ml.compat.mlflow.active_run import Facts, now
from otel_ml.compat.mlflow.experiment_ids import CREATED, experiment_of_id, has_runs
from otel_ml.compat.mlflow.open_runs import STATE
from otel_ml.compat.tracking.not_kept import not_kept, options_not_kept

__all__ = [
    "create_experiment",
    "delete_experiment",
    "delete_experiment_tag",
    "get_experiment",
    "get_experiment_by_name",
    "restore_experiment",
    "set_experiment",
    "set_experiment_tag",
    "set_experiment_tags",
]


def create_experiment(
    name: str, artifact_location: str | None = None, tags: Any = None, trace_location: Any = None
) -> str:
    """Return the name as its id: an experiment begins with its first run."""
    options_not_kept(
        "mlflow.create_experiment",
        "artifacts are where the store of the run's exporter puts them.",
        artifact_location=artifact_location,
        trace_location=trace_location,
    )
    if name in CREATED or has_runs(name):
        wrong = f"MlflowException: Experiment(name={name}) already exists"
        not_kept(f"mlflow.create_experiment({name!r:.60})", f"{wrong}. It goes on, with the tags that it has.")
    CREATED.setdefault(name, _experiment(name, tags or {}))
    return name


def set_experiment(
    experiment_name: str | None = None, experiment_id: str | None = None, trace_location: Any = None, **options: Any
) -> Any:
    """Name the experiment of runs that begin from now on."""
    options_not_kept("mlflow.set_experiment", "an experiment is its name.", trace_location=trace_location, **options)
    if experiment_name is not None and experiment_id is not None:
        wrong = "MlflowException: Must specify exactly one of: experiment_id or experiment_name"
        not_kept(f"mlflow.set_experiment({experiment_name!r:.60}, experiment_id=…)", f"{wrong}. The name counts.")
    name = experiment_name or experiment_of_id(experiment_id, "mlflow.set_experiment(experiment_id=…)") or ""
    STATE.experiment = name or None
    return CREATED.setdefault(name, _experiment(name, {}))


def get_experiment_by_name(name: str) -> Any:
    """Return an experiment that was created here, or has a run in `OTEL_ML_DIR`; else None."""
    if name in CREATED:
        return CREATED[name]
    return _experiment(name, {}) if has_runs(name) else None


def get_experiment(experiment_id: str) -> Any:
    """Return the experiment of that id, which is its name."""
    # MLflow raises for an id that it does not have. Here an experiment begins with its first run, so any name may be
    # one.
    return get_experiment_by_name(experiment_id) or _experiment(experiment_id, {})


def set_experiment_tag(key: str, value: Any) -> None:
    """Record a tag of the experiment as a parameter of the run, see `set_experiment_tags()`."""
    set_experiment_tags({key: value})


def set_experiment_tags(tags: Mapping[str, Any]) -> None:
    """Record tags of the experiment as parameters `experiment_tags.<key>` of the run that is active."""
    name = STATE.stack[-1].info.experiment_id if STATE.stack else STATE.experiment
    if name:
        known = CREATED.setdefault(name, _experiment(name, {}))
        known.tags.update((key, text_of(value)) for key, value in tags.items())
    if not STATE.stack:
        not_kept("mlflow.set_experiment_tags()", "no run is active. Call it inside of start_run().")
        return
    otel_ml.log_params(tags, prefix="experiment_tags")


def delete_experiment(experiment_id: str) -> None:
    """Say that nothing is deleted."""
    not_kept(f"mlflow.delete_experiment({experiment_id!r})", "nothing is deleted. Use the package 'mlflow'.")


def delete_experiment_tag(key: str) -> None:
    """Forget a tag of the experiment in this process; what is written stays."""
    if STATE.experiment in CREATED:
        CREATED[STATE.experiment].tags.pop(key, None)
    not_kept(f"mlflow.delete_experiment_tag({key!r})", "this process forgets it; what is written already stays.")


def restore_experiment(experiment_id: str) -> None:
    """Say that nothing is restored: nothing was deleted here."""
    not_kept(f"mlflow.restore_experiment({experiment_id!r})", "nothing was deleted here. Use the package 'mlflow'.")


def _experiment(name: str, tags: Mapping[str, Any]) -> Facts:
    return Facts(
        name=name,
        experiment_id=name,
        artifact_location="",
        lifecycle_stage="active",
        tags={key: text_of(value) for key, value in tags.items()},
        creation_time=now(),
        last_update_time=now(),
    )
