"""NeMo RL's logging with otel_ml behind it: change the import, keep the code (`docs/migrate/nemo_rl.md`).

```python
from otel_ml.compat.nemo_rl import Logger, Timer

logger = Logger({"log_dir": "logs", "tensorboard_enabled": True})
timer = Timer()
for step in range(1, 4):
    with timer.time("policy_training"):
        loss = 1 / step
    logger.log_metrics({"loss": loss}, step, prefix="train")
    logger.log_metrics(timer.get_timing_metrics("sum"), step, prefix="timing/train", step_finished=True)
    timer.reset()
logger.finish()
```
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from otel_ml.compat.nemo_rl.checkpoint_status import write_checkpoint_status
from otel_ml.compat.nemo_rl.config import should_log_nemo_gym_full_result_tables
from otel_ml.compat.nemo_rl.config_types import (
    GPUMonitoringConfig,
    LoggerConfig,
    MLflowConfig,
    SwanlabConfig,
    TensorboardConfig,
    WandbConfig,
)
from otel_ml.compat.nemo_rl.flatten import flatten_dict
from otel_ml.compat.nemo_rl.gpu_monitor import RayGpuMonitorLogger
from otel_ml.compat.nemo_rl.grad_norm import warn_if_inf_grad_norm
from otel_ml.compat.nemo_rl.logger import (
    Logger,
    LoggerInterface,
    MLflowLogger,
    SwanlabLogger,
    TensorboardLogger,
    WandbLogger,
)
from otel_ml.compat.nemo_rl.samples import print_message_log_samples
from otel_ml.compat.nemo_rl.startup import configure_rich_logging, get_next_experiment_dir, log_container_init_timing
from otel_ml.compat.nemo_rl.timeout import TimeoutChecker, convert_to_seconds
from otel_ml.compat.nemo_rl.timer import ThreadSafeTimer, Timer
from otel_ml.compat.tracking.original_names import not_here

__all__ = [
    "GPUMonitoringConfig",
    "Logger",
    "LoggerConfig",
    "LoggerInterface",
    "MLflowConfig",
    "MLflowLogger",
    "RayGpuMonitorLogger",
    "SwanlabConfig",
    "SwanlabLogger",
    "TensorboardConfig",
    "TensorboardLogger",
    "ThreadSafeTimer",
    "TimeoutChecker",
    "Timer",
    "WandbConfig",
    "WandbLogger",
    "configure_rich_logging",
    "convert_to_seconds",
    "flatten_dict",
    "get_next_experiment_dir",
    "log_container_init_timing",
    "print_message_log_samples",
    "should_log_nemo_gym_full_result_tables",
    "warn_if_inf_grad_norm",
    "write_checkpoint_status",
]

NOT_HERE: Mapping[str, str] = {
    "GpuMetricSnapshot": "monitor_gpus records rows of the axis time by itself, and keeps no snapshots.",
}
"""Names of the original that are not here, and what is used instead."""


def __getattr__(name: str) -> Any:
    """Say what is used instead of a name of the original that is not here."""
    raise not_here(__name__, name, NOT_HERE)
