"""The address of a SQLite file, as MLflow is given it, and back."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

from otel_ml.exceptions import ConfigError

__all__ = ["database_of", "sqlite_uri"]

_SQLITE = "sqlite:///"


def sqlite_uri(path: Path) -> str:
    """Return the address of a SQLite file, as SQLAlchemy reads it; its versions differ in what they take as written.

    Raises:
        ConfigError: there is none: a `?` in a folder's name ends the path for some of them.
    """
    # Whichever form reads back as the same path, since versions of SQLAlchemy decode differently.
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
    plain = uri.removeprefix(_SQLITE)
    if not {"%", "?"} & set(plain):  # read alike by all versions, and training need not load SQLAlchemy
        return Path(plain)
    try:
        from sqlalchemy.engine import make_url
    except ImportError:  # MLflow's small package has no stores of its own
        return Path(plain)
    return Path(make_url(uri).database or "")
