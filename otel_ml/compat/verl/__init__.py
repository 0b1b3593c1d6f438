"""verl's tracking over otel_ml: `from otel_ml.compat.verl import Tracking, ValidationGenerationsLogger`.

```python
from otel_ml.compat.verl import Tracking

tracking = Tracking("grpo", "dev", default_backend=["console", "tensorboard"], config={"lr": 1e-6})
tracking.log({"actor/pg_loss": 0.1, "critic/rewards/mean": 0.5}, step=1)
tracking.finish()
```
"""

from __future__ import annotations

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
