"""Where MLflow keeps runs if nobody says: the folder a script is started in, where `mlflow ui` looks, too."""

from __future__ import annotations

import os
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from otel_ml.exceptions import ConfigError
from otel_ml.sqlite_address import sqlite_uri

__all__ = ["default_store"]

_OF_FILES = "mlruns"
_DATABASE = "mlflow.db"
_FIRST_WITH_A_DATABASE = (3, 7)


def default_store() -> str | None:
    """Return the store that the installed MLflow takes in this folder where it is told none.

    That is `mlflow.db`, or, before MLflow 3.7 and where it has runs, `mlruns`.

    Returns:
        None where the folder's name cannot be part of a database's address, or the folder is gone.
    """
    try:
        if not _makes_databases() or _has_runs(_OF_FILES):
            return Path(_OF_FILES).absolute().as_uri()
        return sqlite_uri(Path(_DATABASE).absolute())
    except (ConfigError, OSError):
        return None


def _makes_databases() -> bool:
    for package in ("mlflow", "mlflow-skinny"):
        try:
            major, minor, *_ = version(package).split(".")
            return (int(major), int(minor)) >= _FIRST_WITH_A_DATABASE
        except (PackageNotFoundError, ValueError):
            continue
    return True


def _has_runs(folder: str) -> bool:
    """Whether MLflow made experiments there: it numbers their folders, and describes each in `meta.yaml`."""
    try:
        with os.scandir(folder) as entries:
            return any(entry.name.isdigit() and os.path.lexists(f"{entry.path}/meta.yaml") for entry in entries)
    except OSError:
        return False
