"""`get_logger()`: a log file for each rank, whose lines say whose they are."""

from __future__ import annotations

import atexit
import logging
import os
import queue
import sys
from logging.handlers import QueueHandler, QueueListener
from pathlib import Path

__all__ = ["get_logger"]

_NAME = "roll"


def get_logger() -> logging.Logger:
    """Return the logger of this process, made at the first call.

    Lines go to `<ROLL_LOG_DIR>/log_rank_<WORKER_NAME>_<RANK>_<WORLD_SIZE>.log`, where that variable is set, and to
    stdout, errors to stderr. A thread of its own writes them; in a forked child, which has no such thread, each call.
    """
    logger = logging.getLogger(_NAME)
    if not logger.handlers:
        lines: queue.SimpleQueue[logging.LogRecord] = queue.SimpleQueue()
        listener = QueueListener(lines, *_handlers(), respect_handler_level=True)
        listener.start()
        atexit.register(listener.stop)
        logger.addHandler(QueueHandler(lines))
        logger.setLevel(logging.INFO)
        logger.propagate = False
        os.register_at_fork(after_in_child=_write_in_each_call)
    return logger


def _write_in_each_call() -> None:
    """Have a forked child, such as a worker of a loader, write itself. New handlers: those there are may be in use."""
    logging.getLogger(_NAME).handlers[:] = _handlers()


def _handlers() -> list[logging.Handler]:
    worker, rank, world = (os.environ.get(name, other) for name, other in _PLACE)
    place = f"[{worker} {rank} / {world}][PID %(process)d]"
    form = f"[%(asctime)s] [%(filename)s (%(lineno)d)] [%(levelname)s] {place} %(message)s"
    out = logging.StreamHandler(sys.stdout)
    out.addFilter(lambda record: record.levelno < logging.ERROR)
    errors = logging.StreamHandler(sys.stderr)
    errors.setLevel(logging.ERROR)
    handlers: list[logging.Handler] = [out, errors]
    folder = os.environ.get("ROLL_LOG_DIR")
    if folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        path = Path(folder) / f"log_rank_{worker}_{rank}_{world}.log"
        handlers.append(logging.FileHandler(path, encoding="utf-8"))
    for handler in handlers:
        handler.setFormatter(logging.Formatter(form))
    return handlers


_PLACE = (("WORKER_NAME", "DRIVER"), ("RANK", "0"), ("WORLD_SIZE", "1"))
