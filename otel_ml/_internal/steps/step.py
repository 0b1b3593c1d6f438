"""Which step a record belongs to: process-wide by `set_step()`, per context by `with step()`, per call by `step=`."""

from __future__ import annotations

import operator
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from contextvars import ContextVar, Token
from time import time_ns
from typing import Any, NoReturn, overload

from otel_ml._internal.device_tensor import is_on_device
from otel_ml._internal.error_reporting import reporter, say_unused
from otel_ml._internal.native import native
from otel_ml._internal.run_scope import NOW
from otel_ml._internal.safe_repr import safe_repr
from otel_ml._internal.signature import MISSING, public, public_type, publish
from otel_ml._internal.steps.axes import STEPS, Steps, current_step, in_stage, scope_steps
from otel_ml._internal.steps.axis import Axis, Step
from otel_ml.wire.attributes import DEFAULT_AXIS

__all__ = ["At", "StepBlock", "bad_axis", "bad_step", "kind_of_bad_step", "set_step", "step", "step_for", "step_of"]


@public_type
class StepBlock:
    """`with step(10):`, also across `await`: it belongs to its context, not to its thread.

    Attributes:
        again: blocks of its own for those who have entered it while it is open: inside of itself, or in another thread.
        is_open: it was entered, and not left.
    """

    __slots__ = ("again", "axis", "index", "is_open", "outer", "step", "steps", "token", "variable")

    outer: StepBlock | At | None
    step: Step
    token: Token[StepBlock | At | None]
    variable: ContextVar[StepBlock | At | None]

    def __init__(self, index: int, axis: str) -> None:
        self.index: int = index
        self.axis: str = axis
        self.steps: Steps = scope_steps()
        self.is_open: bool = False
        self.again: list[StepBlock] = []

    def __enter__(self) -> None:
        # One object may be entered by several threads, or inside of itself: each gets a block with a token of its own.
        if self.is_open:
            block = StepBlock(self.index, self.axis)
            self.again.append(block)
            block.__enter__()
            return
        self.is_open = True
        self.variable = self.steps.blocks
        self.outer = self.variable.get()
        self.step = self.steps.open(self.axis, self.index)
        self.token = self.variable.set(self)

    def __exit__(self, *_: object) -> None:
        if not self.again:
            self._leave()
            return
        # Which of them it is, its context says: of threads that are in the same block any may leave first.
        block = self.variable.get()
        while block is not None and block is not self and block not in self.again:
            block = block.outer
        if block is self:
            self._leave()
        else:
            # Left in a context that has entered none of them: nothing tells which is meant, so it is the newest.
            (self.again.pop() if block is None else self.again.pop(self.again.index(block))).__exit__()

    def _leave(self) -> None:
        if not self.is_open:
            return
        boundary = NOW.boundary
        if boundary is not None:  # while its own step is current
            boundary()
        self.is_open = False
        # Left in another context than entered (an async generator closed by the event loop): that one is gone.
        with suppress(ValueError):
            self.variable.reset(self.token)
        self.steps.close(self.step)


class At:
    """`with At(step):` what this context records belongs to a step that it was in before, also one that has ended."""

    __slots__ = ("outer", "step", "steps", "token", "variable")

    outer: StepBlock | At | None
    steps: Steps
    token: Token[StepBlock | At | None]
    variable: ContextVar[StepBlock | At | None]

    def __init__(self, step: Step) -> None:
        self.step: Step = step

    def __enter__(self) -> None:
        self.steps = scope_steps()
        self.variable = self.steps.blocks
        self.outer = self.variable.get()
        self.token = self.variable.set(self)
        # From here on records ask their context for a step, and find this one there.
        self.steps.count_asking(1)

    def __exit__(self, *_: object) -> None:
        self.variable.reset(self.token)
        self.steps.count_asking(-1)


class _NoBlock:
    """Stands in for a block while recording is off, or where the step is not one."""

    __slots__ = ()

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        return None


_NO_BLOCK = _NoBlock()


def step_of(value: object) -> int | None:
    """Return a whole number from 0 on, given as an int or as what Python may count with; None for all else.

    A bool is none, and neither is what is on a device: to read it would wait for training.
    """
    index: object = value
    if type(value) is not int:
        try:
            # `operator.index()` takes a bool of Python, and one of torch, for 0 or 1.
            if isinstance(value, bool) or str(getattr(value, "dtype", "")).endswith("bool") or is_on_device(value):
                return None
            index = operator.index(value)  # type: ignore[arg-type] # that it may be none is found out here
        except Exception:  # noqa: BLE001 (an array of several numbers, one that JAX is tracing, a class of the program's)
            return None
    return index if isinstance(index, int) and 0 <= index < 2**63 else None


def bad_step(value: object, call: str) -> str:
    """Say what is wrong with a step."""
    what = "what is on a device, which had to be waited for" if is_on_device(value) else safe_repr(value)
    return f"{call}: expected a step that is a whole number from 0 on, got {what}. Pass an int."


def bad_axis(value: object, call: str) -> str:
    """Say what is wrong with an axis."""
    return f"{call}: expected an axis such as 'rollout', got {safe_repr(value)}. Pass a non-empty string."


def kind_of_bad_step(value: object, call: str) -> str:
    """Return what is reported once: a loop has another number each time."""
    return f"bad step of {call}: {type(value).__name__}"


def _accepted(index: object, axis: object, call: str) -> int | None:
    found = step_of(index)
    if found is None:
        reporter.wrong("bad-step", bad_step(index, call), kind_of_bad_step(index, call))
    elif not isinstance(axis, str) or not axis:
        reporter.wrong("bad-step", bad_axis(axis, call))
        return None
    return found


def _meant(
    call: Callable[..., object], index: object, axis: object, more: tuple[object, ...], named: dict[str, Any]
) -> tuple[object, Any]:
    """Return step and axis of a call whose arguments are others; `step=`, as in `log()`, is a step."""
    for name in ("index", "step"):
        if index is MISSING:
            index = named.pop(name, MISSING)
    # The default itself: no axis was given by position, so it may have been given by name.
    if axis is DEFAULT_AXIS:
        axis = named.pop("axis", axis)
    if more:
        given = ", ".join(map(safe_repr, more[:5]))
        reporter.wrong(
            "unknown-argument",
            f"{call.__name__}(): takes a step and an axis, and was given {given} as well.",
            kind=f"{call.__name__}() by position",
        )
    if named:
        say_unused(call, (), named)
    return index, axis


@overload
def set_step(index: int, axis: str = DEFAULT_AXIS) -> None: ...
@overload
def set_step(*, step: int, axis: str = DEFAULT_AXIS) -> None: ...
@public  # type: ignore[misc] # `step=` is among `unknown`
@publish("index", "axis", required=1)
def set_step(index: Any = MISSING, axis: str = DEFAULT_AXIS, /, *more: NoReturn, **unknown: NoReturn) -> None:
    """Make `index` the current step of this process on `axis`.

    Records without `step=` count there until the next call; a `with step()` block overrides it for
    its context. An earlier step is complete once a later one is entered.

    Args:
        index: a whole number from 0 on, also numpy's, or an array without dimensions in CPU memory; anything else is
            said, and changes nothing.
        axis: what is counted; each axis has a current step of its own.
        more: not used: said, as any other mistake.
        unknown: the same, but for `step=`, which is `index`.
    """
    if index is MISSING or more or unknown:
        index, axis = _meant(set_step, index, axis, more, unknown)
    if NOW.off and isinstance(axis, str):
        STEPS.wanted[axis] = index
        return
    if type(index) is int and 0 <= index < 2**63 and type(axis) is str and axis:  # the usual case, without two calls
        scope_steps().set(axis, index)
    elif (found := _accepted(index, axis, "set_step()")) is not None:
        scope_steps().set(axis, found)


if native is not None:
    set_step = native.set_step_function(
        set_step, STEPS, NOW, Step, Axis, DEFAULT_AXIS, time_ns, STEPS.KEPT + STEPS.SPARE
    )


@overload
def step(index: int, axis: str = DEFAULT_AXIS) -> AbstractContextManager[None]: ...
@overload
def step(*, step: int, axis: str = DEFAULT_AXIS) -> AbstractContextManager[None]: ...
@public  # type: ignore[misc] # `step=` is among `unknown`
@publish("index", "axis", required=1)
def step(
    index: Any = MISSING, axis: str = DEFAULT_AXIS, /, *more: NoReturn, **unknown: NoReturn
) -> AbstractContextManager[None]:
    """Make `index` the current step inside a `with` block, for this context only.

    Several blocks may be open at once, in tasks or threads, on the same or different steps:
    a step is complete when a later one was entered and none of its blocks is open. Threads started
    inside do not inherit it; asyncio tasks do.

    Args:
        index: a whole number from 0 on; anything else is reported, and the block has no step of its own.
        axis: what is counted.
        more: not used: said, as any other mistake.
        unknown: the same, but for `step=`, which is `index`.
    """
    if index is MISSING or more or unknown:
        index, axis = _meant(step, index, axis, more, unknown)
    found = None if NOW.off else _accepted(index, axis, "step()")
    return _NO_BLOCK if found is None else StepBlock(found, axis)


def step_for(index: object, axis: object, call: str, values: int) -> Step | None:
    """Return the step that `step=` and `axis=` of a call with so many values mean; None (counted, said) if none.

    Inside a stage it is the step as the stage sees it; a call that names its axis says where its values go.
    """
    if axis is not None and (not isinstance(axis, str) or not axis):
        reporter.drop("bad_step", bad_axis(axis, call), values)
        return None
    if index is None:
        return current_step() if axis is None else _as_named(scope_steps().current(axis), scope_steps())
    found = step_of(index)
    if found is None:
        reporter.drop("bad_step", bad_step(index, call), values, kind_of_bad_step(index, call))
        return None
    # Behind all that may refuse the call: `steps.at()` may move the current step.
    steps = scope_steps()
    if axis is None:
        return in_stage(steps.at(DEFAULT_AXIS, found), steps)
    return _as_named(steps.at(axis, found), steps)


def _as_named(step: Step, steps: Steps) -> Step:
    """Return a step whose axis a call names: of the stage nothing but that it is not recorded counts."""
    staged = in_stage(step, steps)
    return staged if staged.stage is not None and staged.stage.name is None else step
