"""What an exporter says, which may be a plug-in with a defect: as it can be used, or why it cannot."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable

from otel_ml.exceptions import ConfigError
from otel_ml_exporters.errors import PermanentExportError, RetryableExportError
from otel_ml_exporters.exporter import Exporter

__all__ = ["asked_pause", "check_settings", "position_of", "refused_names", "shown"]

_MOST = 1000
"""Characters of a text that goes into sentences, reasons, answers and `/metrics`."""

_LONGEST_PAUSE_S = 3600.0
"""The longest that a backend may ask to be left alone."""


def shown(value: object) -> str:
    """Return the text of whatever it is, cut; its type where it has none.

    Examples:
        >>> shown(ValueError("no")), len(shown("x" * 5000)), shown(5)
        ('no', 1001, '5')
    """
    try:
        text = str(value)
    except BaseException:  # noqa: BLE001 (of a plug-in)
        return f"<{type(value).__name__}>"
    return text if len(text) <= _MOST else f"{text[:_MOST]}…"


def check_settings(exporter: Exporter) -> None:
    """See whether batches can be made for it.

    Raises:
        ConfigError: with everything that is wrong.
    """
    wanted = {"max_batch": exporter.max_batch, "every": exporter.every}
    odd = {name: value for name, value in wanted.items() if not isinstance(value, int)}
    problems = [f"{name}: expected a whole number, got {value!r}." for name, value in odd.items()]
    if not problems and exporter.max_batch < 1:
        problems.append(f"max_batch: expected a whole number from 1, got {exporter.max_batch!r}.")
    if not isinstance(exporter.max_delay, (int, float)) or not math.isfinite(exporter.max_delay):
        problems.append(f"max_delay: expected seconds, got {exporter.max_delay!r}.")
    if problems:
        raise ConfigError(*problems)


def position_of(exporter: Exporter) -> int | None:
    """Return up to which `seq` its backend has everything; of any library's whole numbers an `int`.

    Raises:
        TypeError: it is none, and not None.
    """
    position = exporter.position()
    return (
        None if position is None else max(0, operator.index(position))
    )  # -1 is how some say that there is nothing yet


def refused_names(error: PermanentExportError) -> frozenset[str]:
    """Return which values a backend refuses, where a failure says so; a plug-in's own class may not.

    Examples:
        >>> sorted(refused_names(PermanentExportError("no", names=["a", "b"])))
        ['a', 'b']
    """
    names = getattr(error, "names", ())
    every = [names] if isinstance(names, str) or not isinstance(names, Iterable) else names
    return frozenset(name for name in every if isinstance(name, str))


def asked_pause(error: BaseException) -> float:
    """Return for how many seconds a backend asks to be left alone; 0 where it does not, or says no number.

    Examples:
        >>> asked = (2, "2", -1, float("inf"), float("nan"), "soon", None, 10**400)
        >>> [asked_pause(RetryableExportError("busy", retry_after=seconds)) for seconds in asked]
        [2.0, 2.0, 0.0, 3600.0, 0.0, 0.0, 0.0, 0.0]
        >>> asked_pause(ValueError())
        0.0
    """
    seconds = getattr(error, "retry_after", None) if isinstance(error, RetryableExportError) else None
    try:
        asked = float(seconds)  # type: ignore[arg-type]  # whatever a plug-in has
    except (TypeError, ValueError, OverflowError):
        return 0.0
    # NaN is unlike itself.
    return min(max(0.0, asked), _LONGEST_PAUSE_S) if asked == asked else 0.0
