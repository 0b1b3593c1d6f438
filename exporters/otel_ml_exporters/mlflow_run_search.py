"""Where MLflow has a run: its database on this host, and how it is found in a store, by `mlflow` and `traces`."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

from otel_ml.exceptions import ConfigError
from otel_ml.wire.short_digest import short_digest

__all__ = ["RUN_ID", "database_of", "experiment_name", "in_quotes", "sqlite_uri"]

_SQLITE = "sqlite:///"

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


def sqlite_uri(path: Path) -> str:
    """Return the address of a SQLite file, as SQLAlchemy reads it; its versions differ in what they take as written.

    Raises:
        ConfigError: there is none: a `?` in a folder's name ends the path for some of them.
    """
    for written in (str(path), quote(str(path))):
        if database_of(f"{_SQLITE}{written}") == path:
            return f"{_SQLITE}{written}"
    raise ConfigError(
        f"mlflow: {str(path)!r} has no address as a database. Set MLFLOW_TRACKING_URI, or OTEL_ML_DIR to a folder "
        "whose name has neither % nor ?."
    )


def database_of(uri: str) -> Path | None:
    """Return the SQLite file of a store; None where the store is another one."""
    if not uri.startswith(_SQLITE):
        return None
    try:
        from sqlalchemy.engine import make_url
    except ImportError:  # MLflow's small package has no stores of its own
        return Path(uri.removeprefix(_SQLITE))
    return Path(make_url(uri).database or "")


def in_quotes(text: str) -> str | None:
    """Return `text` as a string of MLflow's filter language, which has no escapes; None where it has both quotes."""
    return next((f"{quote}{text}{quote}" for quote in ("'", '"') if quote not in text), None)
