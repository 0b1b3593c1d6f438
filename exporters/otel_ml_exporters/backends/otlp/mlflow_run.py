"""MLflow as a receiver of traces: the run that the exporter `mlflow` writes, and who asks.

A server files traces with a run, which is looked up by the tag it has.
"""

from __future__ import annotations

import json
import os
from base64 import b64encode
from collections.abc import Mapping
from typing import Any

from otel_ml.exceptions import ConfigError
from otel_ml_exporters.backends.otlp.client import Client
from otel_ml_exporters.errors import PermanentExportError, RetryableExportError
from otel_ml_exporters.mlflow_run_search import RUN_ID, experiment_name, in_quotes
from otel_ml_exporters.records import RunInfo

__all__ = ["credentials", "headers_of_run"]


def credentials(environ: Mapping[str, str] = os.environ) -> Mapping[str, str]:
    """Return the header with which MLflow's own client would ask a server for which it has variables.

    Raises:
        ConfigError: the token cannot be in a header; says so without it.

    Examples:
        >>> credentials({"MLFLOW_TRACKING_TOKEN": "secret"})
        {'authorization': 'Bearer secret'}
        >>> credentials({"MLFLOW_TRACKING_USERNAME": "ann", "MLFLOW_TRACKING_PASSWORD": "b"})
        {'authorization': 'Basic YW5uOmI='}
        >>> credentials({})
        {}
    """
    user, password, token = (environ.get(f"MLFLOW_TRACKING_{name}", "") for name in ("USERNAME", "PASSWORD", "TOKEN"))
    # In the order in which MLflow's client asks: a token beside user and password is not used.
    if user and password:
        return {"authorization": f"Basic {b64encode(f'{user}:{password}'.encode()).decode()}"}
    if not (token.isascii() and token.isprintable()):
        raise ConfigError("traces: MLFLOW_TRACKING_TOKEN: expected printable ASCII characters, as in a header.")
    return {"authorization": f"Bearer {token}"} if token else {}


def headers_of_run(client: Client, run: RunInfo) -> Mapping[str, str]:
    """Return the headers with which MLflow files spans under the run.

    Raises:
        RetryableExportError: the server cannot be reached, or the run is not there yet.
        PermanentExportError: the server refuses to be asked.
    """
    name = _quoted(experiment_name(run.experiment))
    experiments = _asked(client, "experiments/search", {"max_results": 1, "filter": f"name = {name}"})
    # A run is searched for in experiments that are named by id.
    ids = [str(found["experiment_id"]) for found in experiments.get("experiments", ())]
    asked = {"experiment_ids": ids, "filter": f"tags.`{RUN_ID}` = {_quoted(run.id)}", "max_results": 1}
    runs = _asked(client, "runs/search", asked).get("runs", ()) if ids else ()
    for found in runs:
        return {"x-mlflow-experiment-id": ids[0], "x-mlflow-run-id": str(found["info"]["run_id"])}
    raise RetryableExportError(
        f"traces: MLflow has no run with the tag {RUN_ID} = {run.id!r} yet. The exporter mlflow makes it: add it, "
        "with the same server."
    )


def _asked(client: Client, what: str, asked: Mapping[str, object]) -> Mapping[str, Any]:
    answer = client.ask(f"/api/2.0/mlflow/{what}", json.dumps(asked).encode())
    try:
        said = json.loads(answer)
    except ValueError:
        said = None
    if not isinstance(said, dict):
        raise RetryableExportError(f"traces: what answers is not an MLflow server: {answer[:100]!r}.")
    return said


def _quoted(name: str) -> str:
    found = in_quotes(name)
    if found is None:
        raise PermanentExportError(f"traces: {name!r} has both kinds of quotes; MLflow cannot search for it.")
    return found
