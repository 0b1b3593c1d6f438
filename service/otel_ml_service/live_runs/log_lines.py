"""How the service's log lines look: one a message, whatever a sender put into its names, and without secrets."""

from __future__ import annotations

import logging
from types import TracebackType

from otel_ml.printable import printable
from otel_ml.redaction import redacted

__all__ = ["LogLines"]

_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"

ExceptionInfo = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]


class LogLines(logging.Formatter):
    """Writes out what is not printable, and hides what looks like a secret, in tracebacks too."""

    def __init__(self) -> None:
        super().__init__(_FORMAT)

    def format(self, record: logging.LogRecord) -> str:
        """Return the message and, below it, the traceback."""
        return redacted(super().format(record))

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 (logging's name)
        """Return one line."""
        return printable(super().formatMessage(record))

    def formatException(self, ei: ExceptionInfo) -> str:  # noqa: N802 (logging's name)
        """Return the traceback's lines."""
        return "\n".join(map(printable, super().formatException(ei).splitlines()))
