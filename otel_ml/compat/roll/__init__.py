"""ROLL's trackers and metrics: `create_tracker`, reductions in the key, `MetricsManager`; see `docs/migrate/roll.md`.

```python
from otel_ml.compat.roll import create_tracker

tracker = create_tracker("tensorboard,wandb", config={"lr": 1e-6}, project="rlvr")
tracker.log({"actor/pg_loss@sum": [0.1, 0.2], "val/score/mean": 0.6}, step=3)
tracker.finish()
```
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from otel_ml.compat.roll.durations import DurationTracker
from otel_ml.compat.roll.log_files import get_logger
from otel_ml.compat.roll.metrics_manager import MetricsManager
from otel_ml.compat.roll.reducing import reduce_metrics, reduce_metrics_list
from otel_ml.compat.roll.tags import strip_at_tag_in_log
from otel_ml.compat.roll.tracker import BaseTracker, create_tracker
from otel_ml.compat.roll.trajectories import dump_trajectories, log_trajectories
from otel_ml.compat.tracking.original_names import not_here

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

NOT_HERE: Mapping[str, str] = {
    "TensorBoardTracker": "Use create_tracker('tensorboard', config): one tracker writes to all backends.",
    "WandbTracker": "Use create_tracker('wandb', config): one tracker writes to all backends.",
    "SwanlabTracker": "Use create_tracker('swanlab', config): one tracker writes to all backends.",
    "StdoutTracker": "Use create_tracker('stdout', config): one tracker writes to all backends.",
    "TrackioTracker": "Use create_tracker('trackio', config): one tracker writes to all backends.",
    "tracker_registry": "Write an exporter, which runs in the service; create_tracker() takes its name.",
}
"""Names of the original that are not here, and what is used instead."""


def __getattr__(name: str) -> Any:
    """Say what is used instead of a name of the original that is not here."""
    raise not_here(__name__, name, NOT_HERE)
