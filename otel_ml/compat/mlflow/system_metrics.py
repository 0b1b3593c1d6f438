"""`mlflow.enable_system_metrics_logging()` and its settings: `otel_ml.diagnostics` records what they are about."""

from __future__ import annotations

from otel_ml.compat.tracking.not_kept import not_kept

__all__ = [
    "disable_system_metrics_logging",
    "enable_system_metrics_logging",
    "set_system_metrics_node_id",
    "set_system_metrics_samples_before_logging",
    "set_system_metrics_sampling_interval",
]


def enable_system_metrics_logging() -> None:
    """Say where they come from."""
    not_kept("mlflow.enable_system_metrics_logging()", "use `otel_ml.diagnostics`.")


def disable_system_metrics_logging() -> None:
    """Do nothing: none are recorded by this module."""


def set_system_metrics_sampling_interval(interval: float | None) -> None:
    """Say where they come from."""
    not_kept(f"mlflow.set_system_metrics_sampling_interval({interval!r})", "use `otel_ml.diagnostics`.")


def set_system_metrics_samples_before_logging(samples: int | None) -> None:
    """Say where they come from."""
    not_kept(f"mlflow.set_system_metrics_samples_before_logging({samples!r})", "use `otel_ml.diagnostics`.")


def set_system_metrics_node_id(node_id: str | None) -> None:
    """Say where they come from."""
    not_kept(f"mlflow.set_system_metrics_node_id({node_id!r})", "every process says its host.")
