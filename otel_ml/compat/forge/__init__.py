"""torchforge's observability: `record_metric` from anywhere, `Tracer`, logging modes; see `docs/migrate/forge.md`.

```python
from otel_ml.compat.forge import Reduce, record_metric

record_metric("reward/evaluate_response/avg_total_reward", 0.7, Reduce.MEAN)
```
"""

from __future__ import annotations

from otel_ml.compat.forge.accumulators import (
    MaxAccumulator,
    MeanAccumulator,
    MetricAccumulator,
    MinAccumulator,
    StdAccumulator,
    SumAccumulator,
    reduce_metrics_states,
)
from otel_ml.compat.forge.controller import (
    GlobalLoggingActor,
    LocalFetcherActor,
    MetricCollector,
    get_or_create_metric_logger,
)
from otel_ml.compat.forge.metric import Metric, Reduce, Sample
from otel_ml.compat.forge.modes import LoggingMode
from otel_ml.compat.forge.recording import child_env, record_episode_sample, record_metric
from otel_ml.compat.forge.tracer import Tracer, trace

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
