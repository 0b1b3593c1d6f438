"""`mlflow.autolog()` and `mlflow.pytorch`: said, for they reach into other libraries and the registry of models."""

from __future__ import annotations

from typing import Any

from otel_ml.compat.tracking.not_kept import not_kept

__all__ = ["FLAVORS", "Flavor", "autolog"]

FLAVORS = frozenset(
    {"catboost", "fastai", "keras", "langchain", "lightgbm", "onnx", "openai", "paddle", "prophet", "pyfunc", "pyspark",
     "pytorch", "sentence_transformers", "sklearn", "spacy", "spark", "statsmodels", "tensorflow", "transformers",
     "xgboost"}
)  # fmt: skip


def autolog(*arguments: Any, **options: Any) -> None:
    """Say that nothing is recorded by itself."""
    del arguments, options
    not_kept("mlflow.autolog()", "nothing is recorded by itself. Log what you need, or use `otel_ml.integrations`.")


class Flavor:
    """One of MLflow's modules for another library."""

    def __init__(self, name: str) -> None:
        self._name = name

    def autolog(self, *arguments: Any, **options: Any) -> None:
        """Say that nothing is recorded by itself."""
        autolog(*arguments, **options)

    def log_model(self, *arguments: Any, **options: Any) -> None:
        """Say how a model is kept."""
        del arguments, options
        not_kept(f"mlflow.{self._name}.log_model()", "save the model and pass its files to log_artifact().")

    def save_model(self, *arguments: Any, **options: Any) -> None:
        """Say how a model is kept."""
        del arguments, options
        not_kept(f"mlflow.{self._name}.save_model()", "nothing is written; call the package 'mlflow' for that.")
