"""The reduction in a key: `actor/pg_loss@sum`, `latency_p99`, `score/max`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from otel_ml.warn_once import say

__all__ = ["TAGS", "published", "reduction_of", "strip_at_tag_in_log"]

TAGS = ("mean", "max", "min", "p50", "p99", "std", "sum")
"""The reductions a key can name."""


def reduction_of(key: str, default: str = "mean") -> str:
    """Return the reduction that a key names, after `@`, `_` or `/`; else `default`.

    Examples:
        >>> [reduction_of(key) for key in ("loss@sum", "wait_p99", "score/max", "loss")]
        ['sum', 'p99', 'max', 'mean']
    """
    # ROLL raises ValueError for a tag that it does not know.
    _, at, tag = map(str.strip, key.rpartition("@"))
    if at and tag in TAGS:
        return tag
    if at:
        say(
            "compat-roll",
            f"Metric {key!r}: {tag!r} is not a reduction; expected one of {', '.join(TAGS)}. "
            "It is reduced as without one. Correct the key.",
        )
        return default
    # ROLL looks at `_` alone: of a list under `score/max` it takes the mean.
    return next((tag for tag in TAGS if key.endswith((f"_{tag}", f"/{tag}"))), default)


def published(key: str) -> str:
    """Return the key without what stands after its last `@`.

    Examples:
        >>> published("actor/pg_loss@sum")
        'actor/pg_loss'
    """
    name, at, _ = key.rpartition("@")
    return name if at else key


def _stripped(values: Any) -> Any:
    if not isinstance(values, Mapping):
        return values
    return {published(key) if isinstance(key, str) else key: _stripped(value) for key, value in values.items()}


def strip_at_tag_in_log(func: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the `log(self, values, step)` of a tracker of your own, so that keys arrive without their tags."""

    @functools.wraps(func)
    def stripping(self: Any, values: Mapping[str, Any], step: int | None = None, **keywords: Any) -> Any:
        return func(self, _stripped(values), step, **keywords)

    return stripping
