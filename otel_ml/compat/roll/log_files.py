"""`get_logger()`: a log file for each rank, whose lines say whose they are."""

from __future__ import annotations

import atexit
import logging
import os
import queue
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from logging.handlers import QueueHandler, QueueListener
from pathlib import Path

from otel_ml.warn_once import say

__all__ = ["get_logger"]

_NAME = "roll"


def get_logger() -> logging.Logger:
    """Return the logger of this process, which is always the same.

    Lines go to `<ROLL_LOG_DIR>/log_rank_<WORKER_NAME>_<RANK>_<WORLD_SIZE>.log`, where that variable is set, and to
    stdout, errors to stderr. Where the variables have changed since the last call, as ROLL's configuration sets the
    folder once its modules have their loggers, lines go there from this call on. A thread of its own writes them; in a
    forked child, which has no such thread, each call.
    """
    _LINES.follow(_Place.of(os.environ))
    return logging.getLogger(_NAME)


@dataclass(frozen=True, slots=True)
class _Place:
    """Whose lines they are, and the folder of their file; empty for none."""

    folder: str
    worker: str
    rank: str
    world: str

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> _Place:
        named = (environ.get(name, other) for name, other in _VARIABLES)
        return cls(*named)


_OTHER_FOLDER = "./output/logs"

_VARIABLES = (("ROLL_LOG_DIR", ""), ("WORKER_NAME", "DRIVER"), ("RANK", "0"), ("WORLD_SIZE", "1"))


class _Lines:
    """Owns what writes the lines of this process; the lock guards its exchange."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._place: _Place | None = None
        self._handlers: Sequence[logging.Handler] = ()
        self._listener: QueueListener | None = None
        self._is_forked = False

    def follow(self, place: _Place) -> None:
        """Write to `place` from now on; what was logged before goes where it was meant to."""
        with self._lock:
            if place == self._place:
                return
            logger, before = logging.getLogger(_NAME), self._handlers
            if self._place is None:
                logger.setLevel(logging.INFO)
                logger.propagate = False
                atexit.register(self.stop)
                os.register_at_fork(after_in_child=self._write_in_each_call)
            self._place, self._handlers = place, _handlers(place)
            # The thread that would write has not come along into the child.
            if self._is_forked:
                logger.handlers[:] = self._handlers
            else:
                lines: queue.SimpleQueue[logging.LogRecord] = queue.SimpleQueue()
                # New lines go into the new queue from here on, and stop() waits until the old one is written. The new
                # thread begins after that, so the lines stay in order.
                logger.handlers[:] = [QueueHandler(lines)]
                self.stop()
                self._listener = QueueListener(lines, *self._handlers, respect_handler_level=True)
                self._listener.start()
            # Not in the forked child before: there the handlers belong to the parent's thread.
            for handler in before:
                handler.close()

    def stop(self) -> None:
        """Wait until all that was logged is written."""
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.stop()

    def _write_in_each_call(self) -> None:
        """Have a forked child, such as a worker of a loader, write itself; the handlers there are may be in use."""
        # A new lock: another thread may have held the parent's at the fork, and does not exist here.
        self._lock, self._listener, self._is_forked = threading.RLock(), None, True
        if self._place is not None:
            self._handlers = _handlers(self._place)
            logging.getLogger(_NAME).handlers[:] = self._handlers


_LINES = _Lines()


def _handlers(place: _Place) -> list[logging.Handler]:
    whose = f"[{place.worker} {place.rank} / {place.world}][PID %(process)d]"
    form = f"[%(asctime)s] [%(filename)s (%(lineno)d)] [%(levelname)s] {whose} %(message)s"
    out = logging.StreamHandler(sys.stdout)
    # ROLL writes errors to stdout, too.
    out.addFilter(lambda record: record.levelno < logging.ERROR)
    errors = logging.StreamHandler(sys.stderr)
    errors.setLevel(logging.ERROR)
    handlers: list[logging.Handler] = [out, errors]
    if place.folder:
        handlers += _files(place)
    for handler in handlers:
        handler.setFormatter(logging.Formatter(form, "%Y-%m-%d %H:%M:%S"))
    return handlers


def _files(place: _Place) -> list[logging.Handler]:
    """Return what writes the file: where its folder cannot be made ROLL takes another one; a full disk stops nobody."""
    name = f"log_rank_{place.worker}_{place.rank}_{place.world}.log"
    for folder in map(Path, (place.folder, _OTHER_FOLDER)):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            return [logging.FileHandler(folder / name, encoding="utf-8")]
        except OSError as error:
            why = error.strerror or error
            say(
                "dump-not-written", f"{str(folder / name)!r} is not written: {why}. Set ROLL_LOG_DIR to another folder."
            )
    return []
