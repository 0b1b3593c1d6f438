"""`mlflow.autolog()` and `mlflow.pytorch`: said, for they reach into other libraries and the registry of models."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from otel_ml.compat.mlflow.active_run import Facts
from otel_ml.compat.mlflow.open_runs import current
from otel_ml.compat.mlflow.runs import of_mlflow
from otel_ml.compat.tracking.not_kept import not_kept
from otel_ml.compat.tracking.place_of_the_original import original_in_its_place

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

    def log_model(self, *arguments: Any, **options: Any) -> Facts:
        """Say how a model is kept; return what MLflow would say of it."""
        # Of `log_model(model, "net")` the second argument is the name; MLflow 3 calls it `name`, MLflow 2
        # `artifact_path`.
        named = options.get("name") or options.get("artifact_path") or next((one for one in arguments[1:2]), "model")
        not_kept(f"mlflow.{self._name}.log_model()", "save the model and pass its files to log_artifact().")
        run_id = current().info.run_id
        return Facts(run_id=run_id, artifact_path=named, model_uri=f"runs:/{run_id}/{named}", model_id=None)

    def __getattr__(self, name: str) -> Any:
        """Return what MLflow's own module calls so, `load_model`, `save_model`, …: it records nothing in a run."""
        if name.startswith("__"):  # `import mlflow.pytorch` asks for some
            raise AttributeError(name)
        # Says where the package is missing, and tells MLflow the address of set_tracking_uri(). The attribute may be a
        # `Flavor` again, so the module itself is imported below.
        of_mlflow(self._name, is_of_the_server=True)
        with original_in_its_place("mlflow"):
            return getattr(import_module(f"mlflow.{self._name}"), name)
