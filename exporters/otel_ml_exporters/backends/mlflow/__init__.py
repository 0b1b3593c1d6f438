"""MLflow: one run in its tracking store, default SQLite in `OTEL_ML_DIR`."""

from __future__ import annotations

from otel_ml_exporters.backends.mlflow.exporter import MlflowExporter

__all__ = ["MlflowExporter"]
