"""NeMo RL's names for the types of its configuration, for scripts that import them.

What each key does here: `docs/migrate/nemo_rl.md`.
"""

from __future__ import annotations

from typing import TypedDict

__all__ = [
    "GPUMonitoringConfig",
    "LoggerConfig",
    "MLflowConfig",
    "SwanlabConfig",
    "TensorboardConfig",
    "WandbConfig",
]


class WandbConfig(TypedDict, total=False):
    """Of W&B."""

    project: str
    name: str
    entity: str
    log_nemo_gym_full_result_tables: bool


class SwanlabConfig(TypedDict, total=False):
    """Of SwanLab."""

    project: str
    name: str


class TensorboardConfig(TypedDict, total=False):
    """Of TensorBoard."""

    log_dir: str


class MLflowConfig(TypedDict, total=False):
    """Of MLflow."""

    experiment_name: str | None
    run_id: str | None
    run_name: str | None
    tracking_uri: str | None
    artifact_location: str | None


class GPUMonitoringConfig(TypedDict, total=False):
    """Seconds between two looks at the GPUs, and between two sendings."""

    collection_interval: float
    flush_interval: float


class LoggerConfig(TypedDict, total=False):
    """What `Logger` takes; each key may be left out."""

    log_dir: str
    wandb_enabled: bool
    swanlab_enabled: bool
    tensorboard_enabled: bool
    mlflow_enabled: bool
    wandb: WandbConfig
    swanlab: SwanlabConfig
    tensorboard: TensorboardConfig
    mlflow: MLflowConfig
    monitor_gpus: bool
    gpu_monitoring: GPUMonitoringConfig
    num_val_samples_to_print: int
