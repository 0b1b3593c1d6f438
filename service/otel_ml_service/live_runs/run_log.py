"""`service.log` in a run's folder: of what a service of many runs logs, that which concerns this one."""

from __future__ import annotations

import contextlib
import logging
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, TextIO

from otel_ml.printable import printable
from otel_ml.redaction import redacted
from otel_ml_exporters.file_identity import has_name

if TYPE_CHECKING:
    _StreamHandler = logging.StreamHandler[TextIO]
else:
    _StreamHandler = logging.StreamHandler  # takes no parameter in Python 3.10

__all__ = ["LOG_BYTES", "LogLines", "OutputLog", "RunLog"]

LOG_BYTES = 16 * 2**20
"""Most bytes of `service.log`; the 16 MiB before them are in `service.log.1`."""

_LOGGERS = [logging.getLogger(name) for name in ("otel_ml_service", "otel_ml_exporters")]

_SPEAKING: ContextVar[str] = ContextVar("otel_ml_run")
"""The run on whose behalf something is logged; an exporter's thread has it from whoever started it."""


class RunLog:
    """Adds to a file what is logged inside `speaking()`, and by threads that were started there.

    Args:
        experiment: id of the run.
        path: of the file, made with the first line; None for no file.
    """

    def __init__(self, experiment: str, path: Path | None) -> None:
        self._experiment = experiment
        self._handler: logging.Handler = logging.NullHandler()
        if path is not None:
            self._handler = _RunFile(path, maxBytes=LOG_BYTES, backupCount=1, encoding="utf-8", delay=True)
        self._handler.setFormatter(LogLines())
        # All runs have their handlers at the same loggers: each takes the lines of its own run.
        self._handler.addFilter(lambda _: _SPEAKING.get(None) == experiment)
        for logger in _LOGGERS:
            logger.addHandler(self._handler)

    @contextmanager
    def speaking(self) -> Iterator[None]:
        """Log on behalf of the run."""
        token = _SPEAKING.set(self._experiment)
        try:
            yield
        finally:
            _SPEAKING.reset(token)

    def close(self) -> None:
        """Close the file; safe twice."""
        for logger in _LOGGERS:
            logger.removeHandler(self._handler)
        self._handler.close()


class _RunFile(RotatingFileHandler):
    """Follows no link, is its owner's to read, and begins anew where somebody deleted or moved its file."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line."""
        if self.stream is not None and not has_name(self.stream.fileno(), Path(self.baseFilename)):
            gone, self.stream = self.stream, None  # it is opened with the next line, as with `delay`
            with contextlib.suppress(OSError):  # what a full disk has not taken: the file may be deleted for that
                gone.close()
        super().emit(record)

    def _open(self) -> TextIOWrapper:
        # Here, and not in `emit`: what this raises is a line that is not logged, and not an error of who logs.
        Path(self.baseFilename).parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        return os.fdopen(os.open(self.baseFilename, flags, 0o600), "a", encoding=self.encoding)


class OutputLog(_StreamHandler):
    """Writes to the process' own output; begins anew where that is a file that has become too large."""

    def __init__(self, stream: TextIO, most: int = 2 * LOG_BYTES) -> None:
        super().__init__(stream)
        self._most = most

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line."""
        with contextlib.suppress(OSError, ValueError):  # no file, or none that can be cut
            handle = self.stream.fileno()
            if not os.fstat(handle).st_nlink:
                _open_again(handle)
            if os.fstat(handle).st_size > self._most and stat.S_ISREG(os.fstat(handle).st_mode):
                os.ftruncate(handle, 0)
        super().emit(record)


def _open_again(handle: int) -> None:
    """Let the handle of a file that was deleted be that of a new file of its name."""
    path = Path(str(Path(f"/proc/self/fd/{handle}").readlink()).removesuffix(" (deleted)"))
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    os.dup2(fresh, handle, inheritable=False)
    # The number of the old one is the new file now: this is a second one of it.
    os.close(fresh)


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
