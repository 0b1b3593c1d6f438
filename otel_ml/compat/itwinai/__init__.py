"""The loggers of itwinai on otel_ml: one run, every worker, all backends at once.

```python
from otel_ml.compat.itwinai import LoggersCollection, MLFlowLogger, TensorBoardLogger

logger = LoggersCollection([MLFlowLogger(experiment_name="digits"), TensorBoardLogger()])
with logger.start_logging(rank=rank):
    logger.log(0.5, "loss", kind="metric", step=0)
```
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from otel_ml.compat.itwinai.backends import ConsoleLogger, MLFlowLogger, TensorBoardLogger, WandBLogger
from otel_ml.compat.itwinai.collection import LoggersCollection, get_mlflow_logger
from otel_ml.compat.itwinai.logger import EmptyLogger, Logger, LoggerContextError, LogMixin
from otel_ml.compat.itwinai.provenance import Prov4MLLogger
from otel_ml.compat.tracking.original_names import not_here

if TYPE_CHECKING:
    from otel_ml.compat.itwinai.lightning import ItwinaiLogger

__all__ = [
    "ConsoleLogger",
    "EmptyLogger",
    "ItwinaiLogger",
    "LogMixin",
    "Logger",
    "LoggerContextError",
    "LoggersCollection",
    "MLFlowLogger",
    "Prov4MLLogger",
    "TensorBoardLogger",
    "WandBLogger",
    "get_mlflow_logger",
]


NOT_HERE: Mapping[str, str] = dict.fromkeys(
    ("check_initialized", "check_not_initialized"),
    "A logger of your own derives from Logger, whose methods check by themselves.",
)
"""Names of the original that are not here, and what is used instead."""


def __getattr__(name: str) -> object:
    if name == "ItwinaiLogger":  # it loads Lightning
        from otel_ml.compat.itwinai.lightning import ItwinaiLogger

        return ItwinaiLogger
    raise not_here(__name__, name, NOT_HERE)
