"""NeMo RL's loggers of one backend each, for programs that make one without a `LoggerConfig`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from otel_ml.compat.nemo_rl.logger import Logger

__all__ = ["MLflowLogger", "SwanlabLogger", "TensorboardLogger", "WandbLogger"]


class _OneBackend(Logger):
    """A `Logger` with one backend.

    Args:
        cfg: its section of the `LoggerConfig`.
        log_dir: the current folder by default.
    """

    backend = ""

    def __init__(self, cfg: Mapping[str, Any] | None = None, log_dir: str | None = None) -> None:
        super().__init__({"log_dir": log_dir or ".", f"{self.backend}_enabled": True, self.backend: cfg})


class WandbLogger(_OneBackend):
    """Records into Weights & Biases."""

    backend = "wandb"


class SwanlabLogger(_OneBackend):
    """Records into SwanLab."""

    backend = "swanlab"


class TensorboardLogger(_OneBackend):
    """Records into TensorBoard."""

    backend = "tensorboard"


class MLflowLogger(_OneBackend):
    """Records into MLflow."""

    backend = "mlflow"
