"""MLflow's server in one process: `python -m tests.integration.mlflow_server FOLDER PORT`.

`mlflow server` is a process that imports MLflow to start another one with what is said here.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import uvicorn
from mlflow.server.constants import (
    ARTIFACT_ROOT_ENV_VAR,
    ARTIFACTS_DESTINATION_ENV_VAR,
    BACKEND_STORE_URI_ENV_VAR,
    SERVE_ARTIFACTS_ENV_VAR,
)


def serve(folder: Path, port: int) -> None:
    os.environ[BACKEND_STORE_URI_ENV_VAR] = f"sqlite:///{folder / 'server.db'}"
    os.environ[ARTIFACT_ROOT_ENV_VAR] = "mlflow-artifacts:/"
    os.environ[ARTIFACTS_DESTINATION_ENV_VAR] = str(folder / "files")
    os.environ[SERVE_ARTIFACTS_ENV_VAR] = "true"
    uvicorn.run("mlflow.server.fastapi_app:app", host="127.0.0.1", port=port, log_level="warning")


if __name__ == "__main__":
    serve(Path(sys.argv[1]), int(sys.argv[2]))
