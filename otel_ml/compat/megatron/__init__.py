"""Megatron's timers, training log and logging configuration; see `docs/migrate/megatron.md`.

```python
from otel_ml.compat.megatron import LoggerConfig, Timers

timers = Timers(log_level=1, log_option="minmax")
timers("forward-backward", log_level=1).start()
timers("forward-backward").stop()
timers.write(["forward-backward"], writer=None, iteration=3)
```
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from otel_ml.compat.megatron.callbacks import (
    VALID_EVENTS,
    Callback,
    CallbackContext,
    CallbackManager,
    normalize_callbacks,
    should_fire,
)
from otel_ml.compat.megatron.checkpoints import on_load_checkpoint_success, on_save_checkpoint_success
from otel_ml.compat.megatron.config import LoggerConfig, start
from otel_ml.compat.megatron.log_levels import (
    add_filter_to_all_loggers,
    barrier_and_log,
    module_filter,
    safe_serialize,
    setup_logging,
    warning_filter,
)
from otel_ml.compat.megatron.progress import ProgressLog, append_to_progress_log, progress_log
from otel_ml.compat.megatron.timer_text import across_ranks_string
from otel_ml.compat.megatron.timers import DummyTimer, Timer, Timers
from otel_ml.compat.megatron.training_log import TrainingLog
from otel_ml.compat.tracking.original_names import not_here

__all__ = [
    "VALID_EVENTS",
    "Callback",
    "CallbackContext",
    "CallbackManager",
    "DummyTimer",
    "LoggerConfig",
    "ProgressLog",
    "Timer",
    "Timers",
    "TrainingLog",
    "across_ranks_string",
    "add_filter_to_all_loggers",
    "append_to_progress_log",
    "barrier_and_log",
    "module_filter",
    "normalize_callbacks",
    "on_load_checkpoint_success",
    "on_save_checkpoint_success",
    "progress_log",
    "safe_serialize",
    "setup_logging",
    "should_fire",
    "start",
    "warning_filter",
]

_GIVEN = "Give what was computed to TrainingLog.log()."
_LOOKED_FOR = "The service says which rank is slow in what otel_ml.timed() measures: otel-ml why."
_TRACKED = "TrainingLog records times of iterations, progress_log() checkpoints; otel_ml.timed() measures the rest."

NOT_HERE: Mapping[str, str] = {
    "TimerBase": "Timer and DummyTimer have the same methods, and no class above them.",
    "get_timers": "Make one Timers, and pass it on: there are no global variables.",
    "get_tensorboard_writer": "TrainingLog and otel_ml.log() write to every backend.",
    "get_wandb_writer": "TrainingLog and otel_ml.log() write to every backend.",
    "get_one_logger": _TRACKED,
    "get_energy_monitor": _GIVEN,
    "report_memory": "LoggerConfig(log_memory_to_tensorboard=True) records it.",
    "report_theoretical_memory": "Log what Megatron's own computes, by otel_ml.log_params().",
    "report_throughput": "LoggerConfig(log_throughput_to_tensorboard=True) records it.",
    "report_runtime": "LoggerConfig(log_runtime_to_tensorboard=True) records it.",
    "report_l2_norm_grad": _GIVEN,
    "StragglerDetector": _LOOKED_FOR,
    "StragglerDetectionConfig": _LOOKED_FOR,
    "NVRxStragglerDetectionManager": _LOOKED_FOR,
    "NVRxStragglerDetectionConfig": _LOOKED_FOR,
    "check_nvrx_straggler_detection": _LOOKED_FOR,
    "safe_shutdown_nvrx_straggler_manager": _LOOKED_FOR,
    "get_timestamp_in_ms": _TRACKED,
    "on_pretrain_start": _TRACKED,
    "track_config_flags": _TRACKED,
    "on_train_start": _TRACKED,
    "track_e2e_metrics": _TRACKED,
    "track_app_tag": _TRACKED,
    "on_save_checkpoint_start": _TRACKED,
    "on_save_checkpoint_end": _TRACKED,
    "finish": "otel_ml.shutdown() ends the run.",
}
"""Names of the original that are not here, and what is used instead."""


def __getattr__(name: str) -> Any:
    """Say what is used instead of a name of the original that is not here."""
    raise not_here(__name__, name, NOT_HERE)
