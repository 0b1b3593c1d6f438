"""The run that the exporter `mlflow` writes, looked up by the tag it gives it: a server files traces with a run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from otel_ml_exporters.backends.otlp.client import Client
from otel_ml_exporters.errors import PermanentExportError, RetryableExportError
from otel_ml_exporters.records import RunInfo

__all__ = ["headers_of_run"]

_TAG = "otel_ml.run_id"
_LONGEST_NAME = 500


def headers_of_run(client: Client, run: RunInfo) -> Mapping[str, str]:
    """Return the headers with which MLflow files spans under the run.

    Raises:
        RetryableExportError: the server cannot be reached, or the run is not there yet.
        PermanentExportError: the server refuses to be asked.
    """
    experiments = _asked(client, "experiments/search", {"max_results": 1, "filter": f"name = {_quoted(_name(run))}"})
    ids = [str(found["experiment_id"]) for found in experiments.get("experiments", ())]
    asked = {"experiment_ids": ids, "filter": f"tags.`{_TAG}` = {_quoted(run.id)}", "max_results": 1}
    runs = _asked(client, "runs/search", asked).get("runs", ()) if ids else ()
    for found in runs:
        return {"x-mlflow-experiment-id": ids[0], "x-mlflow-run-id": str(found["info"]["run_id"])}
    raise RetryableExportError(
        f"traces: MLflow has no run with the tag {_TAG} = {run.id!r} yet. The exporter mlflow makes it: add it, "
        "with the same server."
    )


def _asked(client: Client, what: str, asked: Mapping[str, object]) -> Mapping[str, Any]:
    answer = client.ask(f"/api/2.0/mlflow/{what}", json.dumps(asked).encode())
    try:
        said = json.loads(answer)
    except ValueError:
        said = None
    if not isinstance(said, dict):
        raise RetryableExportError(f"traces: what answers is no MLflow server: {answer[:100]!r}.")
    return said


def _name(run: RunInfo) -> str:
    """Return the experiment's name as the exporter `mlflow` writes it."""
    if len(run.experiment) <= _LONGEST_NAME:
        return run.experiment
    digest = hashlib.sha256(run.experiment.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{run.experiment[: _LONGEST_NAME - 9]}-{digest}"


def _quoted(name: str) -> str:
    """Return a name as a string of MLflow's filter language, which has no escapes."""
    for quote in ("'", '"'):
        if quote not in name:
            return f"{quote}{name}{quote}"
    raise PermanentExportError(f"traces: {name!r} has both kinds of quotes; MLflow cannot search for it.")
