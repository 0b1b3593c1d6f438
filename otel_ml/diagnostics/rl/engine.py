"""What inference engines and their replicas do."""

from __future__ import annotations

import time
from collections.abc import Callable

import otel_ml
from otel_ml.diagnostics.rl.table import measure
from otel_ml.never_raises import never_raises

__all__ = ["ReplicaWatch", "generated", "kv_cache", "requests", "sampling_parameters"]


@never_raises
def generated(tokens: int, *, seconds: float, replica: str = "") -> None:
    """Record the rate of one generation; a replica's rates are averaged in a step, replicas are summed.

    Args:
        tokens: that came out.
        seconds: that it took.
        replica: its name, which makes a series of its own.
    """
    if seconds > 0:
        measure("rl/engine/token_rate").record(tokens / seconds, attributes=_replica(replica))


@never_raises
def requests(*, running: int, queued: int, replica: str = "") -> None:
    """Record the requests in work and those that wait, now.

    Args:
        running: in work.
        queued: waiting.
        replica: its name, where one process sees several: each has a series of its own.
    """
    attributes = _replica(replica)
    measure("rl/engine/requests_running").record(running, attributes=attributes)
    measure("rl/engine/queue_depth").record(queued, attributes=attributes)


@never_raises
def kv_cache(
    *,
    size: int | None = None,
    utilization: float | None = None,
    misses: int | None = None,
    lookups: int | None = None,
    replica: str = "",
    utilisation: float | None = None,  # the former spelling
) -> None:
    """Record the KV cache; what is not given is absent.

    Args:
        size: bytes.
        utilization: part in use, 0 to 1.
        misses: look-ups since the last call that found nothing.
        lookups: all look-ups since the last call.
        replica: its name, where one process sees several.
        utilisation: the former spelling of `utilization`.
    """
    attributes = _replica(replica)
    if size is not None:
        measure("rl/engine/kv_cache_size").record(size, attributes=attributes)
    part = utilisation if utilization is None else utilization  # the former spelling
    if part is not None:
        measure("rl/engine/kv_cache_utilisation").record(part, attributes=attributes)
    # Weighted by look-ups, so that the rates of replicas pool to that of all look-ups.
    if misses is not None and lookups:
        measure("rl/engine/kv_cache_miss_rate").record(misses / lookups, weight=lookups, attributes=attributes)


@never_raises
def sampling_parameters(
    *,
    temperature: float | None = None,
    top_p: float | None = None,
    top_k: int | None = None,
    max_tokens: int | None = None,
) -> None:
    """Record what sampling is set to, where it changes while the job runs; what is not given is absent."""
    given = {"temperature": temperature, "top_p": top_p, "top_k": top_k, "max_tokens": max_tokens}
    for name, value in given.items():
        if value is not None:
            measure(f"rl/sample/{name}").record(value)


class ReplicaWatch:
    """Counts failures of replicas, and how long each was away.

    Args:
        clock: seconds; for tests.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failed: dict[str, float] = {}

    @never_raises
    def failed(self, replica: str, reason: str = "") -> None:
        """A replica failed; a second failure before it recovered is the same one."""
        if replica in self._failed:
            return
        self._failed[replica] = self._clock()
        measure("rl/engine/replica_failures").record(1)
        otel_ml.event("rl.replica.failed", {"replica": replica, "reason": reason})

    @never_raises
    def recovered(self, replica: str) -> None:
        """A replica that failed works again."""
        since = self._failed.pop(replica, None)
        if since is not None:
            away = self._clock() - since
            measure("rl/engine/recovery_time").record(away)
            otel_ml.event("rl.replica.recovered", {"replica": replica, "seconds": away})


def _replica(replica: str) -> dict[str, object] | None:
    return {"replica": replica} if replica else None
