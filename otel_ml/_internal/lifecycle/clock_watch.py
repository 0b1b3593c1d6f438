"""How far this host's clock is from the service's: asked for now and then, and published with its bound."""

from __future__ import annotations

import json
import time

from otel_ml._internal.record.append import append
from otel_ml._internal.series.definition import CLOCK_BOUND, CLOCK_OFFSET
from otel_ml._internal.steps.axes import current_step
from otel_ml._internal.transport.answer import Transport
from otel_ml._internal.transport.clock_offset import ClockOffset
from otel_ml.wire.boot_clock import seconds_since_boot
from otel_ml.wire.rendezvous import boot_id

__all__ = ["ClockWatch"]

PATH = "/otel_ml/clock"

FIRST_S, EVERY_S, TIMEOUT_S = 2.0, 10.0, 1.0
"""When it is asked for first, so that short jobs never do; how often; and how long an answer is waited for."""


class ClockWatch:
    """Asks for one process of a host, on the background thread.

    Args:
        local_rank: of this process on its host; 0 asks.
        now: seconds of a monotonic clock.
    """

    def __init__(self, local_rank: int, now: float) -> None:
        self._at = now + FIRST_S if local_rank == 0 else float("inf")
        self._offset = ClockOffset()

    def look(self, transport: Transport | None, now: float) -> None:
        """Ask, where it is time, and record what is known then: nothing on the service's own machine."""
        if transport is None or now < self._at:
            return
        self._at = now + EVERY_S
        sent = seconds_since_boot()
        answer = transport.get(PATH, TIMEOUT_S)
        received = seconds_since_boot()
        said = _read(answer)
        if said is None or said[0] == boot_id():
            self._at = float("inf")  # nobody there to ask, or it is this clock
            return
        # Seconds since the service's boot, and its time of day. The first has no jumps when somebody sets the clock, so
        # the offset is measured between the clocks since boot.
        _, theirs, their_time = said
        self._offset.add(sent, theirs, received)
        self._record(their_time - theirs)

    def _record(self, their_zero: float) -> None:
        """Record how far apart the clocks are that people set."""
        now_ns, now = time.time_ns(), seconds_since_boot()
        known = self._offset.at(now)
        if known is not None:
            # The clocks since boot differ by `known`; each host's time of day is that clock and the moment of its boot.
            offset, bound = known[0] + their_zero - (now_ns / 1e9 - now), known[1]
            step = current_step()
            append((CLOCK_OFFSET, step, offset, now_ns, CLOCK_BOUND, step, bound, now_ns))


def _read(answer: bytes | None) -> tuple[str, float, float] | None:
    """Return the service's boot, its time since then, and its time of day; None of anything else."""
    try:
        said = json.loads(answer or b"")
        return str(said["boot"]), float(said["boot_time"]), float(said["time"])
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return None
