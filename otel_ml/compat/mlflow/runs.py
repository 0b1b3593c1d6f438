"""`mlflow.start_run()` and the functions beside it: what begins, ends and finds a run, and where runs are written."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

import otel_ml
from otel_ml._internal.safe_repr import safe_repr, text_of
from otel_ml.compat.mlflow.active_run import NOTE, RUN_NAME, ActiveRun
from otel_ml.compat.mlflow.default_store import default_store
from otel_ml.compat.mlflow.open_runs import STATE, TRACKING_URI, current
from otel_ml.compat.mlflow.system_metrics import enable_system_metrics_logging
from otel_ml.compat.tracking.not_kept import not_kept, options_not_kept
from otel_ml.compat.tracking.original_names import name_of_the_original
from otel_ml.compat.tracking.own_backend import with_own_backend

__all__ = [
    "active_run",
    "delete_run",
    "end_run",
    "get_artifact_uri",
    "get_parent_run",
    "get_run",
    "get_tracking_uri",
    "is_tracking_uri_set",
    "last_active_run",
    "of_mlflow",
    "restore_run",
    "set_tracking_uri",
    "start_run",
]

# A run takes its status from the exception that it ends with.
_ENDINGS: Mapping[str, type[BaseException]] = {"FAILED": SystemExit, "KILLED": KeyboardInterrupt}
_STATUSES = ("RUNNING", "SCHEDULED", "FINISHED", "FAILED", "KILLED")


def start_run(
    run_id: str | None = None,
    experiment_id: str | None = None,
    run_name: str | None = None,
    nested: bool = False,
    parent_run_id: str | None = None,
    tags: Mapping[str, Any] | None = None,
    description: str | None = None,
    log_system_metrics: bool | None = None,
) -> ActiveRun:
    """Begin a run; with `nested`, a part of the active one whose names begin with `run_name`.

    The tags `mlflow.runName` and `mlflow.note.content` are its name and its description.
    """
    if log_system_metrics:
        enable_system_metrics_logging()
    # A copy: `_note()` puts the description into it.
    given = dict(tags or {})
    notes, called = _note(description, given), run_name or given.get(RUN_NAME)
    name = None if called is None else text_of(called)
    if not STATE.stack:
        if parent_run_id:
            not_kept(f"mlflow.start_run(parent_run_id={parent_run_id!r})", "it is not active; this run has no parent.")
        return STATE.begin(run_id, name, given, notes, _experiment_id(experiment_id))
    if not (nested or parent_run_id):
        wrong = f"Exception: Run with UUID {STATE.stack[-1].info.run_id} is already active"
        not_kept("mlflow.start_run()", f"{wrong}. It goes on; call end_run() first, or pass nested=True.")
        return STATE.stack[-1]
    active = STATE.nest(_part(run_id, experiment_id) or name, given)
    if given:
        otel_ml.log_params(given, prefix=f"{active.prefix}tags")
    return active


def _part(run_id: str | None, experiment_id: str | None) -> str | None:
    """Return which part of the active run an id names, that of a nested run; any other id has no place and is said."""
    before = f"{STATE.stack[-1].info.run_id}/"
    part = run_id.removeprefix(before) if run_id is not None and run_id.startswith(before) else None
    options_not_kept(
        "mlflow.start_run",
        "a nested run is a part of the active one, in its experiment. log_metric(run_id=…) records into another.",
        run_id=run_id if part is None else None,
        experiment_id=None if experiment_id == STATE.stack[-1].info.experiment_id else experiment_id,
    )
    return part


def _note(description: str | None, tags: dict[str, Any]) -> str | None:
    """Return the description of a run, which its tags then have, as in MLflow."""
    if description is None:
        return None if tags.get(NOTE) is None else str(tags[NOTE])
    if tags.get(NOTE) is not None:
        wrong = f"MlflowException: Description is already set via the tag {NOTE} in tags"
        not_kept(f"mlflow.start_run(description={description!r:.40})", f"{wrong}. The description counts.")
    tags[NOTE] = description
    return description


def _experiment_id(given: Any) -> str | None:
    if given is None or isinstance(given, (str, int)):
        return None if given is None else str(given)
    wrong = f"MlflowException: Invalid experiment id: {given!r:.80}"
    not_kept("mlflow.start_run(experiment_id=…)", f"{wrong}. The run is in the experiment that set_experiment() named.")
    return None


def end_run(status: str = "FINISHED") -> None:
    """End the innermost run; `FAILED` and `KILLED` are its status in every backend that knows one."""
    if not STATE.stack:
        return
    ending = str(status).upper()
    if ending not in _STATUSES:
        wrong = f"Exception: Could not get run status corresponding to string {status}"
        not_kept(
            f"mlflow.end_run({safe_repr(status)})", f"{wrong}: the run has finished. One of {', '.join(_STATUSES)}."
        )
        ending = "FINISHED"
    kind = _ENDINGS.get(ending)
    # `SystemExit(0)` would be a run that has finished.
    STATE.end(STATE.stack[-1], kind, kind(1) if kind is not None else None, ending)


def active_run() -> ActiveRun | None:
    """Return the innermost run, or None."""
    return STATE.stack[-1] if STATE.stack else None


def last_active_run() -> ActiveRun | None:
    """Return the innermost run; where none is open, the one that has ended last."""
    return STATE.last


def get_run(run_id: str) -> Any:
    """Return a run that this process has begun, with what it has recorded; others are read from MLflow by its package.

    Raises:
        ValueError: this process has begun none of that id, and the package `mlflow` is not installed.
        MlflowException: MLflow has none, either.
    """
    return STATE.known(run_id) or _of_the_store("get_run", run_id)


def get_parent_run(run_id: str) -> Any:
    """Return the run that a nested one is a part of, or None.

    Raises:
        ValueError, MlflowException: as `get_run()`.
    """
    found = STATE.known(run_id)
    return found.parent if found is not None else _of_the_store("get_parent_run", run_id)


def _of_the_store(call: str, run_id: str) -> Any:
    if find_spec("mlflow") is None:
        raise ValueError(f"run {run_id!r} was not begun here. MLflow's are read by the package 'mlflow'.")
    return of_mlflow(call, is_of_the_server=True)(run_id)


def of_mlflow(name: str, *, is_of_the_server: bool) -> Any:
    """Return what MLflow's own package calls so; it asks where `set_tracking_uri()` says.

    Raises:
        AttributeError: there is no such name, or the package is not installed.
    """
    found = name_of_the_original("mlflow", name, is_of_the_server=is_of_the_server)
    # Each time, as the address may have changed; MLflow's package keeps one for the whole process.
    if STATE.uri:
        name_of_the_original("mlflow", "set_tracking_uri", is_of_the_server=True)(STATE.uri)
    return found


def set_tracking_uri(uri: Any) -> None:
    """Have runs that begin from now on written there, where the job does not name its exporters; else say so."""
    STATE.uri = str(uri)
    exporters = with_own_backend("mlflow") if STATE.uri else None
    if exporters is not None:
        STATE.write_to(exporters, {TRACKING_URI: STATE.uri})
    elif STATE.uri != STATE.where:
        not_kept(
            f"mlflow.set_tracking_uri({STATE.uri!r})",
            "set MLFLOW_TRACKING_URI where the job starts; the exporter 'mlflow' reads it.",
        )


def get_tracking_uri() -> str:
    """Return the address that was set, that of the environment, or that of the store which MLflow takes without one.

    Returns:
        "" where `OTEL_ML_EXPORTERS` or a service elsewhere decides where runs are written, and no address is set.
    """
    default = default_store() if with_own_backend("mlflow") else None
    return STATE.uri or STATE.where or default or ""


def is_tracking_uri_set() -> bool:
    """Whether `set_tracking_uri()` or `MLFLOW_TRACKING_URI` says one."""
    return bool(STATE.uri) or STATE.is_told_where


def get_artifact_uri(artifact_path: str | None = None) -> str:
    """Return where the run's artifacts are, as far as this process knows."""
    uri = str(current().info.artifact_uri)
    return f"{uri}/{artifact_path}" if artifact_path else uri


def delete_run(run_id: str) -> None:
    """Say that nothing is deleted."""
    not_kept(f"mlflow.delete_run({run_id!r})", "nothing is deleted. Use the package 'mlflow'.")


def restore_run(run_id: str) -> None:
    """Say that nothing is restored: nothing was deleted here."""
    not_kept(f"mlflow.restore_run({run_id!r})", "nothing was deleted here. Use the package 'mlflow'.")
