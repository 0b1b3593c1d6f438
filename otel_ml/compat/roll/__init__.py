"""ROLL's trackers and metrics: `create_tracker`, reductions in the key, `MetricsManager`; see `docs/migrate/roll.md`.

```python
from otel_ml.compat.roll import create_tracker

tracker = create_tracker("tensorboard,wandb", config={"lr": 1e-6}, project="rlvr")
tracker.log({"actor/pg_loss@sum": [0.1, 0.2], "val/score/mean": 0.6}, step=3)
tracker.finish()
```
"""

from __future__ import annotations

from otel_ml.compat.roll.durations import DurationTracker
from otel_ml.compat.roll.log_files import get_logger
from otel_ml.compat.roll.metrics_manager import MetricsManager
from otel_ml.compat.roll.reducing import reduce_metrics, reduce_metrics_list
from otel_ml.compat.roll.tags import strip_at_tag_in_log
from otel_ml.compat.roll.tracker import BaseTracker, create_tracker
from otel_ml.compat.roll.trajectories import dump_trajectories, log_trajectories

__all__ = [
    "BaseTracker",
    "DurationTracker",
    "MetricsManager",
    "create_tracker",
    "dump_trajectories",
    "get_logger",
    "log_trajectories",
    "reduce_metrics",
    "reduce_metrics_list",
    "strip_at_tag_in_log",
]
