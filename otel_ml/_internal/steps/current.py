"""`current_step()`: the number of the step that a record would belong to."""

from __future__ import annotations

from otel_ml._internal.error_reporting import answered, reporter
from otel_ml._internal.run_scope import NOW
from otel_ml._internal.signature import public
from otel_ml._internal.steps import axes
from otel_ml._internal.steps.step import bad_axis

__all__ = ["current_step"]


@public
@answered
def current_step(axis: str | None = None) -> int | None:
    """Return the number of the current step: where `log()` without `step=` records.

    None outside of steps, and while nothing is recorded. A `with step()` block counts for its own context, and what
    `set_step()`, `steps()` and `step()` of several axes say is decided as for `log()`: the innermost block, else the
    axis `step`, else the axis set last.

    Args:
        axis: the axis whose current step is meant; anything but a name of one is reported, and has no step.

    Examples:
        >>> import otel_ml
        >>> from otel_ml.testing import capture
        >>> with capture():
        ...     otel_ml.set_step(3)
        ...     with otel_ml.step(10, axis="eval"):
        ...         print(otel_ml.current_step(), otel_ml.current_step(axis="step"))
        10 3
    """
    if axis is None:
        return None if NOW.off else axes.current_step().index
    if not isinstance(axis, str) or not axis:
        reporter.wrong("bad-step", bad_axis(axis, "current_step()"))
        return None
    return None if NOW.off else axes.scope_steps().current(axis).index
