"""Models of a run → versions in MLflow's model registry, where the run is in MLflow."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from otel_ml import Run
from otel_ml.quantities import seconds
from otel_ml.sqlite_address import database_of, sqlite_uri
from otel_ml.warn_once import reporter
from otel_ml.wire.safe_names import unique_path

__all__ = ["ToRegister", "register"]

TIMEOUT_S = 15.0
"""For the service to have opened the run in MLflow, and for MLflow to answer; the program has ended training."""


@dataclass(frozen=True)
class ToRegister:
    """A model that was logged.

    Attributes:
        artifact: its name in the run.
        model: its name in the registry.
        alias: of the version, or empty.
    """

    artifact: str
    model: str
    alias: str


def register(models: Sequence[ToRegister], run: Run) -> None:
    """Make a version of each of `models`; what cannot be registered stays an artifact of the run, which is reported."""
    missing = list(models)
    error: list[Exception] = []

    def work() -> None:
        try:
            _register(missing, run)
        except Exception as found:  # noqa: BLE001 (MLflow's, its database's, the network's)
            error.append(found)

    # The service loads MLflow meanwhile, too. On a busy host that takes as long as all that is waited for afterwards.
    with suppress(ImportError):  # `work` reports it
        import mlflow  # noqa: F401
    # MLflow's client repeats a request for minutes; the program would wait for it at its end.
    worker = threading.Thread(target=work, name="otel-ml-registry", daemon=True)
    worker.start()
    worker.join(TIMEOUT_S)
    # The worker takes out what it has registered, so after a timeout the rest is still here. It may go on registering
    # meanwhile, as nobody ends it.
    if missing:
        why = _first_line(error[0]) if error else f"no answer within {seconds(TIMEOUT_S)}"
        names = ", ".join(one.model for one in missing)
        reporter.say(
            "itwinai-registry",
            f"MLFlowLogger: {names} not in MLflow's registry: {why}. Expected a run that MLflow stores; the model is "
            "kept as an artifact of the run, register it from there.",
        )


def _register(missing: list[ToRegister], run: Run) -> None:
    import mlflow
    from mlflow.exceptions import MlflowException

    # `<OTEL_ML_DIR>/<experiment>/<run id>`: the exporter's database is beside the experiments.
    uri = os.environ.get("MLFLOW_TRACKING_URI") or (run.dir and sqlite_uri(run.dir.resolve().parents[1] / "mlflow.db"))
    if not uri:
        raise LookupError("neither MLFLOW_TRACKING_URI nor a folder of the run is known")
    # A database that is not there yet is made by the service; MLflow's client would make it too, at the same time.
    if (database := database_of(uri)) and not _until(database.exists):
        raise LookupError(f"{uri!r} is not there")
    client = mlflow.MlflowClient(uri)
    stored = _until(lambda: _stored(client, run))
    if stored is None:
        raise LookupError(f"run {run.id!r} is not in {uri.partition('@')[2] or uri!r}")
    while missing:
        one = missing[0]
        try:
            client.get_registered_model(one.model)
        except MlflowException:
            client.create_registered_model(one.model)
        # Where the exporter puts artifacts.
        source = f"{stored.info.artifact_uri}/artifacts/{unique_path(one.artifact)}"
        version = client.create_model_version(one.model, source, run_id=stored.info.run_id)
        if one.alias:
            client.set_registered_model_alias(one.model, one.alias, version.version)
        del missing[0]


def _stored(client: Any, run: Run) -> Any:
    experiment = client.get_experiment_by_name(run.experiment)
    if experiment is None:
        return None
    found = client.search_runs([experiment.experiment_id], f"tags.`otel_ml.run_id` = '{run.id}'", max_results=1)
    return found[0] if found else None


def _until(find: Callable[[], Any]) -> Any:
    """Return what `find` finds, at last nothing: the service opens the run in its own time."""
    # Less than TIMEOUT_S: the requests that follow need the rest of it.
    deadline = time.monotonic() + TIMEOUT_S * 0.8
    while not (found := find()) and time.monotonic() < deadline:
        time.sleep(0.2)
    return found


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".partition("\n")[0]
