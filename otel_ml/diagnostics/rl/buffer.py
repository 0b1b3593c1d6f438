"""What a replay buffer holds, takes in, gives out and throws away."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from otel_ml.diagnostics.rl.table import measure
from otel_ml.never_raises import never_raises

__all__ = ["buffer_read", "buffer_state", "buffer_write", "evicted"]


@never_raises
def buffer_state(*, size: int, capacity: int | None = None, queued: int | None = None) -> None:
    """Record what the buffer holds now.

    Args:
        size: samples in it.
        capacity: samples that fit.
        queued: requests that wait for it.
    """
    measure("rl/buffer/size").record(size)
    # A buffer without a bound has no part of it in use.
    if capacity:
        measure("rl/buffer/utilisation").record(size / capacity)
    if queued is not None:
        measure("rl/buffer/queue").record(queued)


@never_raises
def evicted(count: int, *, reason: str = "") -> None:
    """Record samples that were thrown out unread.

    Args:
        count: how many.
        reason: `full` or `stale`, for instance; each has a series of its own.
    """
    measure("rl/buffer/evicted").record(count, attributes={"reason": reason} if reason else None)


@contextmanager
def buffer_write(samples: int, *, clock: Callable[[], float] = time.perf_counter) -> Iterator[None]:
    """Time a write of so many samples; writes of a step pool to samples per second of writing."""
    began = clock()
    yield
    _rate("rl/buffer/write_throughput", samples, clock() - began)


@contextmanager
def buffer_read(samples: int, *, clock: Callable[[], float] = time.perf_counter) -> Iterator[None]:
    """Time a read of so many samples, from asking to having them."""
    began = clock()
    yield
    # A read that raises has brought nothing, and is not timed.
    seconds = clock() - began
    measure("rl/buffer/retrieval_latency").record(seconds)
    _rate("rl/buffer/read_throughput", samples, seconds)


@never_raises
def _rate(name: str, samples: int, seconds: float) -> None:
    if seconds > 0:  # weighted by its time: rates of the same duration count the same, so they pool to Σ samples / Σ s
        measure(name).record(samples / seconds, weight=seconds)
