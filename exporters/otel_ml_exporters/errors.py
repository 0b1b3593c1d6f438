"""Failures an exporter may report, by what the caller does next.

::

    ExportError
    ├── RetryableExportError      the same records may succeed later
    │   └── RestartExporterError  only in a new exporter, from its own position
    │       ├── ExporterClosedError  export after shutdown
    │       └── StoreGoneError       what was stored is gone: only in a new exporter, from the beginning
    └── PermanentExportError      the same records will fail again
    UnknownExporterError          no exporter of that name (also a ConfigError)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from otel_ml.exceptions import ConfigError, OtelMLError

__all__ = [
    "ExportError",
    "ExporterClosedError",
    "PermanentExportError",
    "RestartExporterError",
    "RetryableExportError",
    "StoreGoneError",
    "UnknownExporterError",
    "on_disk",
    "translated",
]


class ExportError(OtelMLError):
    """Base of the failures of `Exporter.export`."""


class RetryableExportError(ExportError):
    """The backend could not take the records now; the pipeline gives this exporter the same records again, for ever.

    From `export`, only where that exporter can go on; where its connection has broken, RestartExporterError.

    Attributes:
        retry_after: seconds the backend asks to wait, or None for the pipeline's own back-off.
    """

    slug = "exporter-failing"

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class RestartExporterError(RetryableExportError):
    """What the exporter handed over may be lost, or it cannot go on: start a new one, from its `position()`."""


class StoreGoneError(RestartExporterError):
    """What was stored was deleted, moved or cut by somebody else."""

    slug = "store-gone"


class PermanentExportError(ExportError):
    """The backend will never take these records. The pipeline finds out which, and sets them aside with this reason.

    Args:
        names: of the values in `StepRecord` and `Summary` that are refused, where the backend tells: their records
            come again without them.
    """

    slug = "records-refused"

    def __init__(self, message: str, *, names: Iterable[str] = (), slug: str = "") -> None:
        super().__init__(message, slug=slug)
        # A text is an iterable, too: a plug-in that names one value may give it as it is.
        self.names = frozenset([names] if isinstance(names, str) else names)


class ExporterClosedError(RestartExporterError):
    """`export` was called after `shutdown`: it takes nothing anymore, whatever closed it."""

    slug = "exporter-order"

    def __init__(self, name: str) -> None:
        super().__init__(f"Exporter {name!r} is shut down. Start a new one.")


class UnknownExporterError(ConfigError):
    """No exporter is registered under a name.

    Examples:
        >>> print(UnknownExporterError("jsnl", ["jsonl"]))
        No exporter is registered as 'jsnl'. Did you mean 'jsonl'? Registered: jsonl. (otel-ml explain unknown-exporter)
    """

    slug = "unknown-exporter"

    def __init__(self, name: str, registered: Iterable[str]) -> None:
        import difflib

        known = sorted(registered)
        near = difflib.get_close_matches(name, known, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        super().__init__(f"No exporter is registered as {name!r}.{hint} Registered: {', '.join(known)}.")


@contextmanager
def on_disk(folder: Path | None) -> Iterator[None]:
    """Raise `RetryableExportError` where the operating system refuses what is written to `folder` inside."""
    try:
        yield
    except OSError as error:
        raise RetryableExportError(f"{folder} cannot be written to: {error}.") from error


@contextmanager
def translated(export_error: Callable[[Exception], ExportError]) -> Iterator[None]:
    """Raise `export_error` of whatever a backend's library raises inside; our own errors pass."""
    try:
        yield
    # Ours say already what the pipeline does next.
    except OtelMLError:
        raise
    except Exception as error:
        raise export_error(error) from error
