"""Opens a run of MLflow when told to: `python -m tests.integration.racer RUN_DIR RUN_ID`, one of several at once."""

from __future__ import annotations

import sys
from pathlib import Path

from otel_ml_exporters.backends.mlflow import MlflowExporter
from tests.contract.stream import run_info

if __name__ == "__main__":
    exporter = MlflowExporter()
    sys.stdin.readline()
    exporter.start(run_info(Path(sys.argv[1]), sys.argv[2]))
