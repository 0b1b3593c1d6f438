"""A call that waits for the background thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from otel_ml._internal.axes import STEPS, Step
from otel_ml._internal.guard import guard
from otel_ml._internal.step import StepBlock

__all__ = ["Call"]


class Call:
    """What stands in the buffer in place of a series: what to call, and with what."""

    __slots__ = ("_arguments", "_function")

    def __init__(self, function: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        self._function: Callable[..., None] | None = function
        self._arguments = arguments

    @property
    def is_done(self) -> bool:
        """Whether it was called, and what it was given is let go."""
        return self._function is None

    def run(self, step: Step) -> None:
        """Call it, once; what it records without `step=` belongs to `step`."""
        function, self._function = self._function, None
        arguments, self._arguments = self._arguments, ()
        if function is None:
            return
        block = StepBlock(0, "")  # never entered: the step may be over
        block.step, block.outer = step, None
        token = STEPS.blocks.set(block)
        try:
            function(*arguments)
        except Exception as error:  # noqa: BLE001 - the boundary to what helpers do with a user's values
            guard.failed(f"{function.__qualname__}()", error)
        finally:
            STEPS.blocks.reset(token)
