"""What AReaL's sessions are here: timers of theirs and of their phases, and metrics when one ends."""

from __future__ import annotations

from contextvars import Context, copy_context
from time import perf_counter
from typing import Any
from weakref import WeakKeyDictionary

import otel_ml
from otel_ml.never_raises import never_raises

__all__ = ["Sessions"]

_START, _END, _FINALIZED = "_start", "_end", "finalized"
_STATUSES = frozenset({"accepted", "rejected", "failed", "dropped"})


class _Running:
    """A measurement that begins in one task and may end in another; its span is the current one of its context."""

    def __init__(self, name: str, outer: Context) -> None:
        # A span is left in the context that has it: who ends it enters this one, whichever task that is.
        self.context = outer
        # Sessions run beside each other, so their sum is not the time of a step.
        self._timed: Any = otel_ml.timed(name, reduce="max", within="max")
        self.span: Any = outer.run(self._timed.__enter__)
        self._begin_s = perf_counter()

    def stop(self) -> float:
        elapsed_s = perf_counter() - self._begin_s
        self.context.run(self._timed.__exit__, None, None, None)
        return elapsed_s


class _Session:
    def __init__(self, session_id: int, task_id: int) -> None:
        self._whole = _Running("session", copy_context())
        self._whole.span.set_attributes({"session_id": session_id, "task_id": task_id})
        self._running: dict[str, list[_Running]] = {}
        self._phases_s: dict[str, float] = {}
        self.counters: dict[str, float] = {}

    def start(self, phase: str) -> None:
        # A copy: its span is inside of the session's, and beside those of phases that run at the same time.
        running = _Running(f"session/{phase}", self._whole.context.copy())
        self._running.setdefault(phase, []).append(running)

    def end(self, phase: str) -> None:
        if running := self._running.get(phase):
            # Of two of one name that run at once AReaL does not say which has ended; their sum is the same in any
            # order.
            self._phases_s[phase] = self._phases_s.get(phase, 0.0) + running.pop().stop()

    def finish(self, status: Any, reason: Any) -> None:
        outcome = {"status": status, "reason": reason}
        self._whole.span.set_attributes({name: said for name, said in outcome.items() if said is not None})
        seconds = {"total": self._whole.stop(), **self._phases_s}
        values = {**{f"{name}_s": taken for name, taken in seconds.items()}, **self.counters}
        otel_ml.log(values, prefix="session", reduce=("mean", "p99"))
        if status in _STATUSES:
            otel_ml.log({status: 1}, prefix="session", reduce="sum")


class Sessions:
    """The sessions of a process that have begun, by AReaL's tracer of them, and their numbers."""

    def __init__(self) -> None:
        self._of_tracer: WeakKeyDictionary[Any, dict[int, _Session]] = WeakKeyDictionary()

    @never_raises
    def begin(self, tracer: Any, session_id: int, task_id: int) -> None:
        """A session begins."""
        self._of_tracer.setdefault(tracer, {})[session_id] = _Session(session_id, task_id)

    @never_raises
    def hear(self, tracer: Any, session_id: int, event: Any, payload: dict[str, Any]) -> None:
        """A phase of a session begins or ends, or the session does."""
        known = self._of_tracer.get(tracer, {})
        kind = str(event.value)
        if kind == _FINALIZED:
            ended = known.pop(session_id, None)
            if ended is not None:
                ended.finish(payload.get("status"), payload.get("reason"))
            return
        session = known.get(session_id)
        if session is None:
            return
        if kind.endswith(_START):
            session.start(kind.removesuffix(_START))
        elif kind.endswith(_END):
            session.end(kind.removesuffix(_END))

    @never_raises
    def count(self, tracer: Any, session_id: int, name: str, value: float) -> None:
        """A counter of a session goes up."""
        session = self._of_tracer.get(tracer, {}).get(session_id)
        if session is not None:
            session.counters[name] = session.counters.get(name, 0) + value

    def forget(self, tracer: Any) -> None:
        """Sessions of a tracer that have begun do not end."""
        self._of_tracer.pop(tracer, None)
