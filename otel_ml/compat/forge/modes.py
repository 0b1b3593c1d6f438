"""The three logging modes, as reductions and names of otel_ml."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from functools import lru_cache
from typing import Any

import otel_ml
from otel_ml.compat.forge.metric import Metric, Reduce

__all__ = ["STREAM_AXIS", "LoggingMode", "modes_from", "publish", "stream"]

STREAM_AXIS = "stream"
"""Axis of values that are not reduced: each is a row of its own, numbered by its milliseconds since 1970."""


class LoggingMode(Enum):
    """What a backend shows of a key."""

    GLOBAL_REDUCE = "global_reduce"
    """One value over all ranks."""

    PER_RANK_REDUCE = "per_rank_reduce"
    """One value for each rank: `key/rank_<r>`."""

    PER_RANK_NO_REDUCE = "per_rank_no_reduce"
    """Every value, at once: `stream/key/rank_<r>`."""


def modes_from(text: str) -> frozenset[LoggingMode]:
    """Return the modes named in `text`, separated by commas; names that are none are left out."""
    known = {mode.value: mode for mode in LoggingMode}
    return frozenset(known[name] for name in text.split(",") if name in known)


def publish(metric: Metric, modes: Iterable[LoggingMode], step: int | None) -> None:
    """Record a value so that every mode but the streaming one finds its series."""
    # Samples and users' own reductions become values where their states meet, see `publish_merged()`.
    if not isinstance(metric.reduction, Reduce):
        return
    is_global = LoggingMode.GLOBAL_REDUCE in modes
    is_per_rank = LoggingMode.PER_RANK_REDUCE in modes
    for name, options in _series(metric.reduction, is_global=is_global, is_per_rank=is_per_rank):
        otel_ml.record(f"{metric.key}{name}", metric.value, step=step, over=metric.over, **options)


def stream(metric: Metric, number: int) -> None:
    """Record a value as it is, with its time, in a row of its own."""
    row = {metric.key: metric.value, "timestamp": metric.timestamp}
    otel_ml.log(row, step=number, axis=STREAM_AXIS, reduce="rank")


# There are at most 24 answers, and `publish()` asks for one at each value.
@lru_cache
def _series(reduction: Reduce, *, is_global: bool, is_per_rank: bool) -> tuple[tuple[str, Mapping[str, Any]], ...]:
    return tuple(_made(reduction.value, is_global=is_global, is_per_rank=is_per_rank))


def _made(name: str, *, is_global: bool, is_per_rank: bool) -> Iterator[tuple[str, Mapping[str, Any]]]:
    # Neither of the two: the streaming mode alone, which `stream()` serves.
    if not is_per_rank:
        if is_global:
            yield "", {"reduce": name}
    # `rank` shows the mean of each rank's records, so the mean needs no `within`. The other reductions do, or a rank's
    # own maximum would be the mean of its values.
    elif name == "mean":
        yield "", {"reduce": ("mean", "rank") if is_global else "rank"}
    elif name == "std" and is_global:
        # The deviation over all ranks is not one of theirs: two metrics.
        yield "", {"reduce": "std"}
        yield "/std", {"within": "std", "reduce": "rank"}
    else:
        yield "", {"within": name, "reduce": (name, "rank") if is_global else "rank"}
