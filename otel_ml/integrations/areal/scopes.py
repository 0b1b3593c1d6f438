"""What AReaL's `trace_scope()` and `instant()` are here: a timer at AReaL's step, and an event."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import Any

import otel_ml
from otel_ml.never_raises import never_raises

__all__ = ["Scope", "Steps", "instant"]

_STEP = "global_step"
_WAITING = frozenset({"comm", "communication", "sync", "synchronization"})
"""Categories in which ranks wait for each other, by all names that AReaL takes for them."""


class Steps:
    """Which step of AReaL's a process is in."""

    def __init__(self) -> None:
        self._is_named = False
        self._next: int | None = None

    def of_scope(self, args: Any) -> None:
        """A scope begins: at the step that it names, or at that after the last one that was saved."""
        named = args.get(_STEP) if isinstance(args, Mapping) else None
        if isinstance(named, int):
            # From now on the arguments alone say the step: `save(step=…)` would move it back and forth.
            self._is_named, self._next = True, None
            _enter(named)
        elif self._next is not None:
            step, self._next = self._next, None
            _enter(step)

    def saving(self, step: Any) -> AbstractContextManager[object]:
        """The step is over with what this times; where no scope names its steps, what was before the first is of it.

        Without a record at this step, that would be in the next one, which has the first record that is newer.
        """
        if not isinstance(step, int):
            return nullcontext()
        if not self._is_named:
            _enter(step)
            self._next = step + 1
        return otel_ml.timed("perf_tracer.save")


def _enter(step: int) -> None:
    if otel_ml.current_step() != step:
        otel_ml.set_step(step)


class Scope:
    """AReaL's scope, sync or async, with a timer around what it runs."""

    def __init__(self, theirs: Any, name: str, category: Any, args: Any, steps: Steps) -> None:
        self._theirs = theirs
        self._name = name
        self._category = _text_of(category)
        self._args = args
        self._steps = steps
        self._timed: Any = None

    def __enter__(self) -> Any:
        entered = self._theirs.__enter__()
        # Theirs begins first and ends last, so what it traces is not shorter than our timer.
        self._begin()
        return entered

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Any:
        self._end(kind, error, trace)
        return self._theirs.__exit__(kind, error, trace)

    async def __aenter__(self) -> Any:
        entered = await self._theirs.__aenter__()
        self._begin()
        return entered

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Any:
        self._end(kind, error, trace)
        return await self._theirs.__aexit__(kind, error, trace)

    @never_raises
    def _begin(self) -> None:
        self._steps.of_scope(self._args)
        self._timed = otel_ml.timed(self._name, kind="wait" if self._category in _WAITING else None)
        self._timed.__enter__().set_attributes(_attributes(self._category, self._args))

    @never_raises
    def _end(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._timed.__exit__(kind, error, trace)


@never_raises
def instant(name: str, category: Any, args: Any) -> None:
    """Record what AReaL marks as an event of the run."""
    otel_ml.event(name, _attributes(_text_of(category), args))


def _text_of(category: Any) -> str:
    return str(getattr(category, "value", category) or "misc").strip().lower()


def _attributes(category: str, args: Any) -> dict[str, object]:
    return {"category": category, **(args if isinstance(args, Mapping) else {})}
