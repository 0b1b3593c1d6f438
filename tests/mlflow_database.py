"""Makes a database as MLflow makes it, with no run: `python -m tests.mlflow_database FILE`.

Its migrations take seconds, so the tests that are not about them begin with a copy of one.
"""

from __future__ import annotations

import sys

from mlflow import MlflowClient

if __name__ == "__main__":
    MlflowClient(f"sqlite:///{sys.argv[1]}").search_experiments()
