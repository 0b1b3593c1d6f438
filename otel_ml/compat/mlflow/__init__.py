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

from otel_ml.compat.mlflow.flavors import FLAVORS, Flavor, autolog
from otel_ml.compat.mlflow.recorded import (
    log_artifact,
    log_artifacts,
    log_dict,
    log_figure,
    log_image,
    log_input,
    log_metric,
    log_metrics,
    log_param,
    log_params,
    log_table,
    log_text,
    set_tag,
    set_tags,
)
from otel_ml.compat.mlflow.runs import (
    ActiveRun,
    active_run,
    create_experiment,
    disable_system_metrics_logging,
    enable_system_metrics_logging,
    end_run,
    get_artifact_uri,
    get_experiment_by_name,
    get_tracking_uri,
    last_active_run,
    set_experiment,
    set_tracking_uri,
    start_run,
)

__all__ = [
    "ActiveRun",
    "active_run",
    "autolog",
    "create_experiment",
    "disable_system_metrics_logging",
    "enable_system_metrics_logging",
    "end_run",
    "get_artifact_uri",
    "get_experiment_by_name",
    "get_tracking_uri",
    "last_active_run",
    "log_artifact",
    "log_artifacts",
    "log_dict",
    "log_figure",
    "log_image",
    "log_input",
    "log_metric",
    "log_metrics",
    "log_param",
    "log_params",
    "log_table",
    "log_text",
    "set_experiment",
    "set_tag",
    "set_tags",
    "set_tracking_uri",
    "start_run",
]


def __getattr__(name: str) -> Any:
    """Return `mlflow.pytorch` and the like."""
    if name in FLAVORS:
        return Flavor(name)
    raise AttributeError(f"otel_ml.compat.mlflow has no {name!r}; the package 'mlflow' may be imported beside it")
