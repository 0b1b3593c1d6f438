"""MLflow's fluent interface over otel_ml: `from otel_ml.compat import mlflow`, and the script goes on.

```python
from otel_ml.compat import mlflow

mlflow.set_experiment("digits")
with mlflow.start_run():
    mlflow.log_param("lr", 0.1)
    for step in range(100):
        mlflow.log_metric("loss", 1 / (1 + step), step=step)
```

Every rank may call everything: values of the ranks are averaged, one run comes out, in every exporter.
"""

from __future__ import annotations

from typing import Any

from otel_ml.compat.mlflow import artifacts
from otel_ml.compat.mlflow.active_run import ActiveRun
from otel_ml.compat.mlflow.client import MlflowClient
from otel_ml.compat.mlflow.experiments import (
    create_experiment,
    delete_experiment,
    delete_experiment_tag,
    get_experiment,
    get_experiment_by_name,
    restore_experiment,
    set_experiment,
    set_experiment_tag,
    set_experiment_tags,
)
from otel_ml.compat.mlflow.flavors import FLAVORS, Flavor, autolog
from otel_ml.compat.mlflow.recorded import (
    delete_tag,
    flush_artifact_async_logging,
    flush_async_logging,
    flush_trace_async_logging,
    load_table,
    log_artifact,
    log_artifacts,
    log_dict,
    log_figure,
    log_image,
    log_input,
    log_inputs,
    log_metric,
    log_metrics,
    log_param,
    log_params,
    log_stream,
    log_table,
    log_text,
    set_tag,
    set_tags,
)
from otel_ml.compat.mlflow.runs import (
    active_run,
    delete_run,
    end_run,
    get_artifact_uri,
    get_parent_run,
    get_run,
    get_tracking_uri,
    is_tracking_uri_set,
    last_active_run,
    of_mlflow,
    restore_run,
    set_tracking_uri,
    start_run,
)
from otel_ml.compat.mlflow.system_metrics import (
    disable_system_metrics_logging,
    enable_system_metrics_logging,
    set_system_metrics_node_id,
    set_system_metrics_samples_before_logging,
    set_system_metrics_sampling_interval,
)
from otel_ml.compat.tracking.place_of_the_original import find_submodules

__all__ = [
    "ActiveRun",
    "MlflowClient",
    "active_run",
    "artifacts",
    "autolog",
    "create_experiment",
    "delete_experiment",
    "delete_experiment_tag",
    "delete_run",
    "delete_tag",
    "disable_system_metrics_logging",
    "enable_system_metrics_logging",
    "end_run",
    "flush_artifact_async_logging",
    "flush_async_logging",
    "flush_trace_async_logging",
    "get_artifact_uri",
    "get_experiment",
    "get_experiment_by_name",
    "get_parent_run",
    "get_run",
    "get_tracking_uri",
    "is_tracking_uri_set",
    "last_active_run",
    "load_table",
    "log_artifact",
    "log_artifacts",
    "log_dict",
    "log_figure",
    "log_image",
    "log_input",
    "log_inputs",
    "log_metric",
    "log_metrics",
    "log_param",
    "log_params",
    "log_stream",
    "log_table",
    "log_text",
    "restore_experiment",
    "restore_run",
    "set_experiment",
    "set_experiment_tag",
    "set_experiment_tags",
    "set_system_metrics_node_id",
    "set_system_metrics_samples_before_logging",
    "set_system_metrics_sampling_interval",
    "set_tag",
    "set_tags",
    "set_tracking_uri",
    "start_run",
]


__version__ = "3.17.2"
"""The version of MLflow whose interface this is."""


def __getattr__(name: str) -> Any:
    """Return `mlflow.pytorch` and the like; all other names are MLflow's own."""
    if name in FLAVORS:
        return Flavor(name)
    return of_mlflow(name, is_of_the_server=name in _OF_MLFLOW)


_OF_MLFLOW = frozenset(
    {"Image", "MlflowException", "data", "doctor", "entities", "environment_variables",
     "exceptions", "get_registry_uri", "login", "models", "register_model", "search_experiments",
     "search_model_versions", "search_registered_models", "search_runs", "set_registry_uri", "store", "tracking",
     "types", "utils", "version"}
)  # fmt: skip
"""What asks MLflow's server or store, and records nothing."""


def _submodule(name: str) -> Any:
    return artifacts if name == "artifacts" else Flavor(name) if name in FLAVORS else None


find_submodules("mlflow", _submodule, of_the_server=_OF_MLFLOW)
