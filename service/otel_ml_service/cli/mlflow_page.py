"""The page of a run in an MLflow that is running."""

from __future__ import annotations

import json
import urllib.request
from typing import Any

__all__ = ["mlflow_page"]

_TIMEOUT_S = 30.0


def mlflow_page(address: str, run_id: str) -> str:
    """Return the page of the run tagged with `run_id` in the MLflow at `address`; `address` where there is none.

    The view for model training is asked for: in the other one, which MLflow 3.17 begins with, the way back from a run
    leads to traces and evaluations, and not to the experiment's other runs.
    """
    try:
        experiments = _ask(address, "experiments/search", {"max_results": 1000}).get("experiments", [])
        query = {
            "experiment_ids": [experiment["experiment_id"] for experiment in experiments],
            "filter": f"tags.`otel_ml.run_id` = '{run_id}'",
            "max_results": 1,
        }
        [found] = _ask(address, "runs/search", query).get("runs", [])
    except (OSError, ValueError):  # a refusal of its server is an OSError too
        return address
    info = found["info"]
    return f"{address}#/experiments/{info['experiment_id']}/runs/{info['run_id']}?workflowType=machine_learning"


def _ask(address: str, what: str, query: object) -> Any:
    request = urllib.request.Request(
        f"{address}api/2.0/mlflow/{what}", json.dumps(query).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:
        return json.load(answer)
