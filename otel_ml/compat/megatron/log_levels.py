"""What the console shows: level, warnings, modules."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import TypeAlias

from otel_ml.compat.megatron import distributed
from otel_ml.compat.tracking.printed import print_line
from otel_ml.warn_once import say

__all__ = [
    "add_filter_to_all_loggers",
    "barrier_and_log",
    "module_filter",
    "safe_serialize",
    "setup_logging",
    "warning_filter",
]

_VARIABLES = ("MEGATRON_LOGGING_LEVEL", "MEGATRON_BRIDGE_LOGGING_LEVEL")

_THEIRS = "megatron.bridge"
"""Their own loggers have the level, too."""

_Filter: TypeAlias = Callable[[logging.LogRecord], bool]

_ADDED: list[tuple[logging.Filterer, logging.Filter | _Filter]] = []
"""Where `setup_logging()` has put which filter."""


def warning_filter(record: logging.LogRecord) -> bool:
    """Return False for a record of level WARNING."""
    return record.levelno != logging.WARNING


def module_filter(record: logging.LogRecord, modules_to_filter: Sequence[str]) -> bool:
    """Return False for a record of a logger whose name begins with one of `modules_to_filter`."""
    return not record.name.startswith(tuple(modules_to_filter))


def add_filter_to_all_loggers(filter: logging.Filter | Callable[[logging.LogRecord], bool]) -> None:  # noqa: A002
    """Add a filter to the root logger and to all that there are. `setup_logging()` reaches those made later, too."""
    for logger in _loggers():
        logger.addFilter(filter)


def barrier_and_log(string: str) -> None:
    """Print `string` and the time on rank 0. Nobody waits for other ranks."""
    if distributed.rank() == 0:
        now = datetime.now().strftime("%Y-%m-%d %H:%M:%S")  # noqa: DTZ005 (Megatron's line, by local time)
        print_line(f"[{string}] datetime: {now} ")


def safe_serialize(obj: object) -> str:
    """Return `str(obj)`, or `<its type>` where that fails."""
    try:
        return str(obj)
    except Exception:  # noqa: BLE001 (an object of users fails in any way)
        return f"<{type(obj).__name__}>"


class _Quiet(logging.Filter):
    """Drops what any of several filters drops."""

    def __init__(self, filters: Sequence[_Filter]) -> None:
        super().__init__()
        self._filters = filters

    def filter(self, record: logging.LogRecord) -> bool:
        return all(lets_pass(record) for lets_pass in self._filters)


def setup_logging(
    logging_level: int | str | None = None,
    filter_warning: bool = True,
    modules_to_filter: Sequence[str] | None = None,
    set_level_for_all_loggers: bool = False,
) -> None:
    """Set what the program's loggers show; called again, the last call counts.

    Args:
        logging_level: a number or name; else MEGATRON_LOGGING_LEVEL, MEGATRON_BRIDGE_LOGGING_LEVEL, else INFO.
        filter_warning: drop records of level WARNING.
        modules_to_filter: prefixes of loggers whose records are dropped: `torch` is `torchvision`, too; also of
            loggers made later.
        set_level_for_all_loggers: set the level of each logger there is, not of the root and `megatron.bridge` alone.
    """
    level = _level(logging_level)
    root = logging.getLogger()
    # Without a handler Python shows warnings and errors only, whatever the level is.
    if not root.handlers:
        logging.basicConfig()
    root.setLevel(level)
    filters: list[_Filter] = [warning_filter] if filter_warning else []
    if modules_to_filter:
        filters.append(partial(module_filter, modules_to_filter=modules_to_filter))
    for logger in _loggers():
        if set_level_for_all_loggers or logger.name.startswith(_THEIRS):
            logger.setLevel(level)
    _filter(filters)


def _filter(filters: Sequence[_Filter]) -> None:
    """Put filters into the place of those of the call before.

    One of a logger holds also for handlers that are added later, but sees what is logged with that logger alone; one of
    the root's handlers sees all that arrives, also of loggers made later.
    """
    while _ADDED:
        place, old = _ADDED.pop()
        place.removeFilter(old)
    # A filter that the program has put there itself is not ours to take away at the next call.
    known = {logger: [*logger.filters] for logger in _loggers()}
    for one in filters:
        add_filter_to_all_loggers(one)
        _ADDED.extend((logger, one) for logger, before in known.items() if one not in before)
    quiet = _Quiet(filters)
    for handler in logging.getLogger().handlers:
        handler.addFilter(quiet)
        _ADDED.append((handler, quiet))


def _loggers() -> Sequence[logging.Logger]:
    # A copy of the names: another thread may make a logger meanwhile.
    return [logging.getLogger(), *map(logging.getLogger, list(logging.root.manager.loggerDict))]


def _level(given: int | str | None) -> int:
    named = (
        given if given is not None else next((os.environ[name] for name in _VARIABLES if os.environ.get(name)), None)
    )
    if named is None:
        return logging.INFO
    if isinstance(named, str) and not named.strip().isdigit():
        # Of a name that it does not know it returns a text, `Level LOUD`.
        level = logging.getLevelName(named.strip().upper())
        if isinstance(level, int):
            return level
        say("compat-megatron", f"Logging level {named!r}: expected a number or a name such as 'INFO'. INFO is used.")
        return logging.INFO
    return int(named)
