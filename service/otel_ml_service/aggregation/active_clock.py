"""Time in which the run was heard: what all time-outs are counted in (docs/protocol.md §5.5)."""

from __future__ import annotations

from collections.abc import Callable, Iterable

__all__ = ["ActiveClock"]


class ActiveClock:
    """Runs while anybody is heard; stands still otherwise, and after a gap until every known writer is heard again.

    So neither an outage of the Collector nor a restart of the service makes a step close early.

    Attributes:
        active: seconds that count.
        heard_at: when anybody was heard last, seconds since the epoch.
    """

    __slots__ = ("_awaited", "_now", "_quiet_s", "_restart_wait_s", "_resumed_at", "active", "heard_at")

    def __init__(self, quiet_s: float, restart_wait_s: float) -> None:
        self._quiet_s = quiet_s
        self._restart_wait_s = restart_wait_s
        self._now: float | None = None
        self._awaited: set[int] = set()
        self._resumed_at: float | None = None
        self.active = 0.0
        self.heard_at: float | None = None

    def advance(self, now: float) -> None:
        """Let time pass; a clock that was set back changes nothing."""
        before = self._now
        if before is None or self.heard_at is None:
            self._now = now
            return
        if now <= before:
            return
        self._now = now
        if self._resumed_at is not None:
            # After a gap no time counts until all are heard again, or the wait is over.
            end_of_wait = self._resumed_at + self._restart_wait_s
            if now < end_of_wait:
                return
            self._stop_waiting()
            # The wait itself does not count, also where one call goes from its middle to behind its end.
            before = max(before, end_of_wait)
        # Of a silence only its beginning counts: it may be an outage, in which nobody can be heard.
        self.active += max(0.0, min(now, self.heard_at + self._quiet_s) - before)

    def hear(self, writer: int, now: float, known: Callable[[], Iterable[int]]) -> None:
        """Note that `writer` was heard; `known` are the writers to wait for if this ends a gap."""
        # Both are about the time before this word, so it is noted after them.
        gap = self.heard_at is not None and now - self.heard_at > self._quiet_s
        self.advance(now)
        if gap:
            # Called only where a gap ends: it looks at every writer of the run.
            self._awaited = set(known())
            self._resumed_at = now
        self.heard_at = now if self.heard_at is None else max(now, self.heard_at)
        if self._resumed_at is not None:
            self._awaited.discard(writer)
            if not self._awaited:
                self._stop_waiting()

    def forget(self, writer: int) -> None:
        """Do not wait for `writer` anymore: it ended."""
        self._awaited.discard(writer)
        if self._resumed_at is not None and not self._awaited:
            self._stop_waiting()

    def when(self, active: float) -> float | None:
        """Return the time at which `active` is reached if nobody is heard until then, or None where it is not."""
        if self._now is None or self.heard_at is None:
            return None
        start = self._now
        if self._resumed_at is not None:
            start = max(start, self._resumed_at + self._restart_wait_s)
        # Beyond the silence that counts the clock stands, and only an arrival brings it there.
        moment = start + max(0.0, active - self.active)
        return moment if moment <= self.heard_at + self._quiet_s or active <= self.active else None

    def _stop_waiting(self) -> None:
        self._awaited = set()
        self._resumed_at = None

    def state(self) -> list[object]:
        """Return plain data for `restore`."""
        return [self.active, self.heard_at, self._now, self._resumed_at, sorted(self._awaited)]

    def restore(self, state: list[object]) -> None:
        """Continue from what `state()` returned."""
        self.active, self.heard_at, self._now, self._resumed_at, awaited = state  # type: ignore[assignment]
        self._awaited = set(awaited)  # type: ignore[call-overload]
