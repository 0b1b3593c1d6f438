"""Which form something stored has: a number that goes up with every change of the form (ADR 0030).

Newer code reads what older code stored. Older code leaves what newer code stored as it is, and says who wrote it.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from otel_ml.exceptions import VersionError

__all__ = ["RENDEZVOUS", "SPOOL", "not_taken_up", "own_version", "require"]

SPOOL = 1
"""Of a worker's spool (`spool.py`)."""

RENDEZVOUS = 1
"""Of `service.json` and `run.json` (`rendezvous.py`)."""


@cache
def own_version() -> str:
    """Return the version of this otel_ml; "0" where it runs from its sources without being installed."""
    from importlib.metadata import PackageNotFoundError, version  # 3 MB that most ranks have no use for

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
        who = f"otel_ml {writer}" if writer else "a newer otel_ml"
        raise VersionError(
            f"{str(where)!r} was written by {who}, in version {found} of its form; this otel_ml, {own_version()}, "
            f"reads up to version {known}. It is left as it is. Go on with {who}: pip install --upgrade otel-ml."
        )


def not_taken_up(where: Path, found: int) -> VersionError:
    """Return what is to be said of a form that is an older one, and still cannot be taken up.

    Args:
        where: the file.
        found: version of its form.
    """
    return VersionError(
        f"{str(where)!r} was written in version {found} of its form, by an older otel_ml than this one, "
        f"{own_version()}, can follow. It is left as it is. Finish it with the otel_ml that wrote it."
    )
