"""torchforge's observability: `record_metric` from anywhere, `Tracer`, logging modes; see `docs/migrate/forge.md`.

```python
from otel_ml.compat.forge import Reduce, record_metric

record_metric("reward/evaluate_response/avg_total_reward", 0.7, Reduce.MEAN)
```
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from otel_ml.compat.forge.accumulators import (
    MaxAccumulator,
    MeanAccumulator,
    MetricAccumulator,
    MinAccumulator,
    StdAccumulator,
    SumAccumulator,
)
from otel_ml.compat.forge.controller import (
    GlobalLoggingActor,
    LocalFetcherActor,
    MetricCollector,
    get_or_create_metric_logger,
)
from otel_ml.compat.forge.merging import reduce_metrics_states
from otel_ml.compat.forge.metric import Metric, Reduce, Sample
from otel_ml.compat.forge.modes import LoggingMode
from otel_ml.compat.forge.recording import child_env, record_episode_sample, record_metric
from otel_ml.compat.forge.tracer import Tracer, trace
from otel_ml.compat.tracking.original_names import not_here

__all__ = [
    "GlobalLoggingActor",
    "LocalFetcherActor",
    "LoggingMode",
    "MaxAccumulator",
    "MeanAccumulator",
    "Metric",
    "MetricAccumulator",
    "MetricCollector",
    "MinAccumulator",
    "Reduce",
    "Sample",
    "StdAccumulator",
    "SumAccumulator",
    "Tracer",
    "child_env",
    "get_or_create_metric_logger",
    "record_episode_sample",
    "record_metric",
    "reduce_metrics_states",
    "trace",
]

NOT_HERE: Mapping[str, str] = {
    "BackendRole": "Exporters run in the service and have no role.",
    "LoggerBackend": "Write an exporter, which runs in the service.",
    "ConsoleBackend": "Name the exporter in init_backends({'console': {}}).",
    "WandbBackend": "Name the exporter in init_backends({'wandb': {}}).",
    "get_logger_backend_class": "Exporters are found by the names that init_backends() is given.",
    # torchforge's looks at the context of a Monarch actor; without Monarch there is nothing to ask.
    "get_proc_name_with_rank": "It asks Monarch: use torchforge's, and give the name to init_backends(process_name=…).",
}
"""Names of the original that are not here, and what is used instead."""


def __getattr__(name: str) -> Any:
    """Say what is used instead of a name of the original that is not here."""
    raise not_here(__name__, name, NOT_HERE)
