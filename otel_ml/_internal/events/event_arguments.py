"""What every call that records an event checks first: that there is a run, and its name and step."""

from __future__ import annotations

from otel_ml._internal.error_reporting import reporter
from otel_ml._internal.messages.recorder import recorder
from otel_ml._internal.record.after_shutdown import AFTER_SHUTDOWN
from otel_ml._internal.safe_repr import exact_text, safe_repr
from otel_ml._internal.series.buffer import begin_run
from otel_ml._internal.steps.axis import Step
from otel_ml._internal.steps.step import step_for
from otel_ml.wire import attributes as keys
from otel_ml.wire.published_name import is_own

__all__ = ["attributes_at", "checked_name", "is_on", "located_name"]


def is_on() -> bool:
    """Whether there is a run, started now where the environment asks for one."""
    if AFTER_SHUTDOWN.is_now:
        # A record is counted by the buffer that refuses it; an event does not get that far.
        AFTER_SHUTDOWN.refuse(1)
    return recorder.enabled and begin_run()


def checked_name(name: object, call: str) -> str | None:
    """Return a name that an event may have; None (counted, said) for any other."""
    if isinstance(name, str) and name and not is_own(name):
        return exact_text(name)
    expected = f"a non-empty string that has no {keys.RESERVED_PREFIX!r} at its beginning or after a '/'"
    reporter.drop("bad_name", f"{call}: expected a name, got {safe_repr(name)}. Pass {expected}.")
    return None


def located_name(name: str, index: int | None, axis: str | None, call: str) -> dict[str, object] | None:
    """Return the attributes name, and step and axis where they are known; None (counted, said) for a bad step."""
    # With a bad step one event is lost, which `step_for()` counts.
    step = step_for(index, axis, call, 1)
    return None if step is None else attributes_at(step, name)


def attributes_at(step: Step, name: str) -> dict[str, object]:
    """Return the attributes name, and step and axis where it is a step."""
    attributes: dict[str, object] = {keys.NAME: name}
    if step.axis is not None and step.index is not None:
        attributes[keys.STEP] = step.index
        attributes[keys.AXIS] = step.axis.name
    return attributes
