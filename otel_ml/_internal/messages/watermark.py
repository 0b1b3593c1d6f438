"""When a writer says that it is done with a step (docs/protocol.md §4.6)."""

from __future__ import annotations

import math

from otel_ml._internal.steps.axis import Step

__all__ = ["is_step_complete"]

_SETTLING_NS = 10_000_000
"""A thread that read the old step just before `set_step()` may still append to it."""

_SET_BACK_NS = 1_000_000_000
"""A moment so far in the future was taken before the machine's clock was set back; nobody waits for it to come."""


def is_step_complete(step: Step, now_ns: int, lateness_ns: int) -> bool:
    """Whether a later step was entered, no block of this one is open, and all its values are there.

    A block of an older step holds it back, too: a watermark tells the service that the steps passed over have nothing,
    and with versions 7 and 8 in flight 8 may be done first.
    """
    step = step.base or step  # a baseline is complete with the loop's first step
    axis, index = step.axis, step.index
    # A fetched step may have records of the loader already; it is entered when its item is there.
    if axis is None or index is None or step.blocks or step.waiting or axis.fetched is step:
        return False
    if any(other.index is not None and other.index < index for other in list(axis.open)):
        return False
    # By a block, by `set_step()`, or by `log(step=)` where that moves the step.
    passed = axis.latest > index
    if axis.explicit:
        return passed and axis.current is not step and _since(step.ended_ns, now_ns) >= _SETTLING_NS
    # Only log(step=) is used here: being the current step keeps nothing open.
    quiet_ns = _since(max(step.ended_ns, step.last_ns), now_ns)
    return quiet_ns >= (_SETTLING_NS if passed else lateness_ns)


def _since(moment_ns: int, now_ns: int) -> float:
    elapsed_ns = now_ns - moment_ns
    return elapsed_ns if elapsed_ns > -_SET_BACK_NS else math.inf
