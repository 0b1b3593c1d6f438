"""Whether rollouts of NeMo Gym make tables of their full results."""

from __future__ import annotations

from otel_ml.compat.nemo_rl.config_types import WandbConfig

__all__ = ["should_log_nemo_gym_full_result_tables"]


def should_log_nemo_gym_full_result_tables(*, wandb_enabled: bool, wandb_config: WandbConfig) -> bool:
    """Return whether W&B is on and its section has `log_nemo_gym_full_result_tables: true`, which is off by default.

    What the rollouts then give to `Logger.log_metrics()` is a table in every backend.

    Examples:
        >>> should_log_nemo_gym_full_result_tables(wandb_enabled=True, wandb_config={"project": "grpo-dev"})
        False
    """
    return wandb_enabled and bool(wandb_config.get("log_nemo_gym_full_result_tables", False))
