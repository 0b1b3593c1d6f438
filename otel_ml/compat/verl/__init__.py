"""verl's tracking over otel_ml: `from otel_ml.compat.verl import Tracking, ValidationGenerationsLogger`.

```python
from otel_ml.compat.verl import Tracking

tracking = Tracking("grpo", "dev", default_backend=["console", "tensorboard"], config={"lr": 1e-6})
tracking.log({"actor/pg_loss": 0.1, "critic/rewards/mean": 0.5}, step=1)
tracking.finish()
```
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from otel_ml.compat.tracking.original_names import not_here
from otel_ml.compat.verl.file_logger import FileLogger
from otel_ml.compat.verl.reducing import reduce_metrics
from otel_ml.compat.verl.rl_insight import RLInsightLogger
from otel_ml.compat.verl.tables import DapoFilteredRewardTableLogger, ValidationGenerationsLogger
from otel_ml.compat.verl.tracking import Tracking

__all__ = [
    "DapoFilteredRewardTableLogger",
    "FileLogger",
    "RLInsightLogger",
    "Tracking",
    "ValidationGenerationsLogger",
    "reduce_metrics",
]

NOT_HERE: Mapping[str, str] = {
    "ClearMLLogger": "There is no exporter for ClearML.",
    "MLFLOW_MAX_ATTEMPTS": "The service tries again for as long as it takes.",
    "MLFLOW_SLEEP_SECONDS": "The service tries again for as long as it takes.",
    "AggregationType": "Import verl's: reduce_metrics() and Tracking.log() take its values.",
    "Metric": "Import verl's: reduce_metrics() and Tracking.log() take its values.",
    "Numeric": "Import verl's: it is a type.",
    "NumericType": "Import verl's: it is a type.",
}
"""Names of the original that are not here, and what is used instead."""


def __getattr__(name: str) -> Any:
    """Say what is used instead of a name of the original that is not here."""
    raise not_here(__name__, name, NOT_HERE)
