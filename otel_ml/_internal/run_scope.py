"""Whose run a recording call is for, where several are active in this process.

With one run nobody asks: all calls are for it, from whatever thread. With several, a call is for the run that is
current in its context (`contextvars`), else for the one that the main thread has begun, else for nobody: then it is
said and counted, for to guess would mix what two runs measured.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextvars import ContextVar, Token
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from otel_ml._internal.events.event_queue import EventQueue
    from otel_ml._internal.steps.axes import Steps
    from otel_ml._internal.steps.axis import Step

__all__ = ["CURRENT", "NOBODY", "NOW", "PROCESS", "SCOPES", "InScope", "Losses", "Scope", "current_scope", "dropped_of"]


class Now:
    """What recording calls look at first; one attribute load each.

    Attributes:
        off: recording does nothing.
        level: timers above it cost a lookup; -1 while recording is off.
        several: runs are active, and which of them a call is for has to be asked (`current_scope()`).
        step: the process-wide step, or None where a context has to be asked (`step()` was used, or a stage is open).
        boundary: is called before another step becomes current; None where nobody asks for it.
    """

    __slots__ = ("boundary", "level", "off", "several", "step")

    def __init__(self) -> None:
        self.off = True
        self.level = -1
        self.several = False
        self.step: Step | None = None
        self.boundary: Callable[[], None] | None = None


NOW = Now()


class Losses(Counter[str]):
    """Values that were lost, by reason; `losses[reason] += 1` from any thread, and from a signal handler, loses none.

    Python runs handlers and other threads where a function of Python begins, as `Counter.__missing__` is one: what they
    had counted would be overwritten. `str.count` is of C, takes a reason, and returns 0.
    """

    __missing__ = "".count  # type: ignore[assignment] # as said above


class Scope:
    """What calls for one run go to.

    Attributes:
        steps: its axes and steps; their `generation` says of a step whose it is.
        events: its events on the way to the background thread.
        dropped: values that were not accepted, by reason.
        say: where its sentences go; None keeps them.
        outer: what was current in the context in which it was begun.
        place: role and rank of this process in the run.
        is_over: the run has ended.
    """

    __slots__ = ("dropped", "events", "is_over", "outer", "place", "say", "steps")

    steps: Steps
    events: EventQueue

    def __init__(self) -> None:
        self.dropped: Counter[str] = Losses()
        self.say: Callable[[str], None] | None = None
        self.outer: Scope | None = None
        self.place: tuple[str, int] = ("", 0)
        self.is_over: bool = False

    def is_within(self, other: Scope) -> bool:
        """Whether it was begun where `other` was current, or in one of those."""
        scope: Scope | None = self
        while scope is not None and scope is not other:
            scope = scope.outer
        return scope is other


PROCESS = Scope()
"""Of the one run, where there is one: what all fast paths are bound to."""

NOBODY = Scope()
"""Of a context without a run while others have several. What is recorded there is dropped and counted."""

CURRENT: ContextVar[Scope | None] = ContextVar("otel_ml_run", default=None)
"""What is current in a context: the scope of the run that was begun in it last."""


class Scopes:
    """The scopes of the runs that are active.

    Attributes:
        active: in the order of their beginning.
        default: for contexts without a run of their own.
    """

    def __init__(self) -> None:
        self.active: list[Scope] = []
        self.default: Scope | None = None

    def of(self, generation: int) -> Scope | None:
        """Return whose steps of a generation are; None of a run that is over."""
        return next((scope for scope in self.active if scope.steps.generation == generation), None)


SCOPES = Scopes()


def current_scope() -> Scope:
    """Return the scope of this context, where several runs are active."""
    begun = scope = CURRENT.get()
    # A run that was begun inside of another one has ended: its context is in the outer one again.
    while scope is not None and scope.is_over:
        scope = scope.outer
    if scope is not None:
        return scope
    # A context whose own runs are all over gets no default, which is another run: docs/protocol.md §2.2.
    return NOBODY if begun is not None or SCOPES.default is None else SCOPES.default


def dropped_of(step: Step) -> Counter[str]:
    """Return where is counted what is lost of a step, whichever run this context is of."""
    # Not of `current_scope()`: what is lost of a device is found by the background thread of any run.
    return (SCOPES.of(step.generation) or NOBODY).dropped if NOW.several else PROCESS.dropped


class InScope:
    """`with InScope(scope):` calls are for its run, in this context; it may be entered again inside of itself."""

    __slots__ = ("_scope", "_tokens")

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._tokens: _Tokens | None = None

    def __enter__(self) -> None:
        self._tokens = CURRENT.set(self._scope), self._tokens

    def __exit__(self, *_: object) -> None:
        if self._tokens is not None:
            token, self._tokens = self._tokens
            try:  # noqa: SIM105 (`suppress` costs more than what is in it)
                CURRENT.reset(token)
            except ValueError:
                pass  # left in another context than entered (a generator closed elsewhere): that one is gone


_Tokens = tuple[Token["Scope | None"], "_Tokens | None"]
"""Those of an `InScope` that was entered and not left, the last one first."""
