"""Which form something stored has: a number that goes up with every change of the form (ADR 0030).

Newer code reads what older code stored. Older code leaves what newer code stored as it is, and says who wrote it.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from otel_ml.exceptions import VersionError

__all__ = ["RENDEZVOUS", "SPOOL", "otherwise_stored", "own_version", "require"]

SPOOL = 1
"""Of a worker's spool (`spool.py`)."""

RENDEZVOUS = 1
"""Of `service.json` and `run.json` (`rendezvous.py`)."""


@cache
def own_version() -> str:
    """Return the version of this otel_ml; "0" where it runs from its sources without being installed."""
    try:
        return version("otel-ml")
    except PackageNotFoundError:
        return "0"


def require(where: Path, found: int, known: int, writer: str = "") -> None:
    """Do nothing where a form is known.

    Args:
        where: the file.
        found: version of its form.
        known: the newest version that this code knows; it knows all before.
        writer: version of the otel_ml that wrote it, where that is told.

    Raises:
        VersionError: it is a newer one.
    """
    if found > known:
        raise otherwise_stored(where, found, f"reads up to version {known}", writer)


def otherwise_stored(where: Path, found: int, instead: str, writer: str = "") -> VersionError:
    """Return what is to be said of a form that this code does not read.

    Args:
        where: the file.
        found: version of its form.
        instead: what this code does read.
        writer: version of the otel_ml that wrote it, where that is told.
    """
    who = f"otel_ml {writer}" if writer else "another otel_ml"
    return VersionError(
        f"{str(where)!r} was written by {who}, in version {found} of its form; this otel_ml, {own_version()}, "
        f"{instead}. It is left as it is. Go on with {who}, or a newer one: pip install --upgrade otel-ml"
    )
