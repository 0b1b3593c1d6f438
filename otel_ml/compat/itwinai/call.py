"""One call of `log()`; of a collection's, what its loggers give on to their base as it is belongs to it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from otel_ml.compat.tracking.step_axes import counted

__all__ = ["Call", "collecting", "is_given_on"]


@dataclass(frozen=True)
class Call:
    """The arguments of `log()`."""

    item: Any
    identifier: str
    kind: str
    step: Any
    options: Mapping[str, Any]

    def is_of(self, other: Call) -> bool:
        """Whether this is `other`, or that with fewer options."""
        # By identity: comparing two tensors makes another tensor, and waits for the device.
        is_same = self.item is other.item and (self.identifier, self.kind) == (other.identifier, other.kind)
        return is_same and _is_same_step(self.step, other.step) and self._has_options_of(other)

    def _has_options_of(self, other: Call) -> bool:
        # Fewer options are the same call: a logger of the program's own may have taken some out for itself before it
        # gives the rest on.
        return all(name in other.options and value is other.options[name] for name, value in self.options.items())


def _is_same_step(one: Any, other: Any) -> bool:
    one, other = counted(one), counted(other)
    return one is other or (isinstance(one, int) and isinstance(other, int) and one == other)


@dataclass(frozen=True)
class _Collected:
    """A call that the loggers of a collection are being given."""

    call: Call
    whole: object
    loggers: list[Any] = field(default_factory=list)


_COLLECTED: ContextVar[_Collected | None] = ContextVar("otel_ml_itwinai_call", default=None)


@contextmanager
def collecting(call: Call, whole: object) -> Iterator[list[Any]]:
    """Yield the list of the loggers of the collection `whole` that give `call` on to their base within the block."""
    collected = _Collected(call, whole)
    token = _COLLECTED.set(collected)
    try:
        yield collected.loggers
    finally:
        _COLLECTED.reset(token)


def is_given_on(call: Call, whole: object, loggers: Sequence[Any]) -> bool:
    """Whether `loggers` give on what their collection is given, which then records it for them, too.

    Given on a second time it is something of its own.
    """
    collected = _COLLECTED.get()
    if collected is None or collected.whole is not whole or not call.is_of(collected.call):
        return False
    if any(logger in collected.loggers for logger in loggers):
        return False
    collected.loggers.extend(loggers)
    return True
