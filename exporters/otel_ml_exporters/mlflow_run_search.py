"""How a run is found in a store of MLflow, by `mlflow` and `traces`."""

from __future__ import annotations

from otel_ml.wire.short_digest import short_digest

__all__ = ["RUN_ID", "experiment_name", "in_quotes"]

RUN_ID = "otel_ml.run_id"
"""The tag that has `ml.experiment.id`: MLflow gives its runs ids of its own."""

_LONGEST = 500
"""`mlflow.utils.validation.MAX_EXPERIMENT_NAME_LENGTH`."""


def experiment_name(name: str) -> str:
    """Return an experiment's name that MLflow takes; the beginning and a hash where it is longer.

    Examples:
        >>> experiment_name("digits"), len(experiment_name("lr=0.1," * 100))
        ('digits', 500)
    """
    if len(name) <= _LONGEST:
        return name
    return f"{name[: _LONGEST - 9]}-{short_digest(name)}"


def in_quotes(text: str) -> str | None:
    """Return `text` as a string of MLflow's filter language, which has no escapes; None where it has both quotes."""
    return next((f"{quote}{text}{quote}" for quote in ("'", '"') if quote not in text), None)
