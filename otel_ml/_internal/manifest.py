"""When a writer says that it is done with a step (CONTRACT §5)."""

from __future__ import annotations

from otel_ml._internal.axes import Step

__all__ = ["is_done"]

_SETTLING_NS = 10_000_000
"""A thread that read the old step just before `set_step()` may still append to it."""


def is_done(step: Step, now_ns: int, lateness_ns: int) -> bool:
    """Whether a later step was entered, no block of this one is open, and all its values are there.

    A block of an older step holds it back, too: a manifest tells the service that the steps passed over have nothing,
    and with versions 7 and 8 in flight 8 may be done first.
    """
    axis, index = step.axis, step.index
    if axis is None or index is None or step.blocks or step.waiting:
        return False
    if any(other.index is not None and other.index < index for other in list(axis.open)):
        return False
    passed = axis.latest > index
    if axis.explicit:
        return passed and axis.current is not step and now_ns - step.ended_ns >= _SETTLING_NS
    # Only log(step=) is used here: being the current step keeps nothing open.
    quiet_ns = now_ns - max(step.ended_ns, step.last_ns)
    return quiet_ns >= (_SETTLING_NS if passed else lateness_ns)
