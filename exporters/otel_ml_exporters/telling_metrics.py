"""Which of a step's metrics are worth a column, and how their values are written."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence

from otel_ml.wire.published_name import matches
from otel_ml.wire.reductions import DEFAULT, REDUCTIONS

__all__ = ["height", "interesting", "significant"]

_FURTHER = "|".join(name for name, row in REDUCTIONS.items() if row.publishes == "value" and name != DEFAULT)
_SECONDARY = re.compile(rf"^otel_ml/|(?:^|/)time/exposed/.+/rank$|(?:^|/)(?:rank_\d+|p\d+|{_FURTHER})$")
"""The service's own figures, each rank's series, and further reductions of a metric that has a column already."""

_ORDER = (
    re.compile(r"loss|nll|perplexity", re.IGNORECASE),
    re.compile(r"acc|reward|score|auc|f1|bleu|return", re.IGNORECASE),
    re.compile(r"^[^/]*$"),
    re.compile(r"^time/step$"),
    re.compile(r"^(?!time/)"),
)
"""What is looked at first: loss, quality, plain names, the length of a step, others, timers."""

_PLAIN_INTEGER = 1e9
"""Counts are written in full up to here; longer ones are harder to read than 1.234e+09."""


def interesting(names: Iterable[str], patterns: Sequence[str] = ()) -> list[str]:
    """Return the names to show, most telling first; with `patterns` those that match, in the patterns' order.

    Examples:
        >>> interesting(["time/forward", "lr", "loss/max", "accuracy", "loss", "loss/rank_0"])
        ['loss', 'accuracy', 'lr', 'time/forward']
        >>> interesting(["time/forward", "time/exposed/forward", "time/exposed/forward/rank", "loss"])
        ['loss', 'time/exposed/forward']
        >>> interesting(["time/forward", "lr", "loss/max"], ["l*"])
        ['loss/max', 'lr']
    """
    if patterns:
        ranked = [(_first(patterns, name), name) for name in names]
        return [name for rank, name in sorted(ranked) if rank < len(patterns)]
    known = set(names)
    chosen = (name for name in known if not _SECONDARY.search(name) and _exposed(name) not in known)
    return [name for _, name in sorted((_rank(name), name) for name in chosen)]


def _exposed(name: str) -> str:
    """Return what a timer's part of an account is called: it adds up over timers, where their slowest ranks do not."""
    place, is_timer, phase = name.rpartition("time/")
    return f"{place}time/exposed/{phase}" if is_timer and not place.endswith("exposed/") else ""


def _first(patterns: Sequence[str], name: str) -> int:
    return next((at for at, pattern in enumerate(patterns) if matches(name, pattern)), len(patterns))


def _rank(name: str) -> int:
    return next((at for at, pattern in enumerate(_ORDER) if pattern.search(name)), len(_ORDER))


def height(value: float, low: float, high: float) -> float:
    """Return where a value is between two others, from 0 to 1; 0 where these are the same.

    Examples:
        >>> height(3.0, 2.0, 4.0), height(1e308, -1e308, 1e308)
        (0.5, 1.0)
    """
    if math.isinf(high - low):  # no double is as large as what is between them
        value, low, high = value / 2, low / 2, high / 2
    return (value - low) / (high - low) if high > low else 0.0


def significant(value: float, digits: int) -> str:
    """Return `value` with `digits` significant digits, counts in full.

    Examples:
        >>> [significant(value, 4) for value in (0.5, 1234.5678, 51200.0, 3e-7, float("nan"))]
        ['0.5000', '1235', '51200', '3.000e-07', 'nan']
    """
    if not math.isfinite(value):
        return str(float(value))
    if abs(value) < _PLAIN_INTEGER and (value == int(value) or abs(value) >= 10 ** (digits - 1)):
        # A whole number has no zeros behind a point, and one with as many digits before it as are shown has none there.
        return f"{value:.0f}"
    # `#` keeps zeros at the end, and a point behind which nothing follows: `1000.` of 999.96, `3.e-07` of one digit.
    return f"{value:#.{digits}g}".replace(".e", "e").removesuffix(".")
