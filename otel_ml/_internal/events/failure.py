"""What a process failed with: an event as the semantic conventions for exceptions in logs have it."""

from __future__ import annotations

import traceback

from otel_ml._internal.error_reporting import never_raises
from otel_ml._internal.events.event_queue import current_events
from otel_ml._internal.events.log_record import ERROR, LogRecord
from otel_ml._internal.safe_repr import text_of
from otel_ml._internal.steps.axes import current_step
from otel_ml.redaction import redacted
from otel_ml.wire import attributes as keys

__all__ = ["record_failure"]

LONGEST_MESSAGE = 2000
"""Characters of a message; some quote a whole configuration."""

LONGEST_TRACE = 16_000
"""Characters of a traceback: its last ones, which say where it broke."""


@never_raises
def record_failure(error: BaseException) -> None:
    """Record the exception that ends this process' part of the run, at the step that it is in, or was in last."""
    kind = type(error)
    at = current_step()
    # Inside a stage `at` is a view, whose base is the step itself; outside of all steps its base is the one that was
    # left last.
    at = at.base or at
    attributes: dict[str, object] = {
        keys.STATUS: "failed",
        keys.EXCEPTION_TYPE: kind.__qualname__ if kind.__module__ == "builtins" else _full_name(kind),
        keys.EXCEPTION_MESSAGE: redacted(text_of(error)[:LONGEST_MESSAGE]),
    }
    if error.__traceback__ is not None:
        # Cut afterwards: by the name alone that stands before it many a secret is known as one.
        trace = redacted("".join(traceback.format_exception(error)))
        attributes[keys.EXCEPTION_STACKTRACE] = trace[-LONGEST_TRACE:]
    if at.axis is not None and at.index is not None:
        attributes |= {keys.STEP: at.index, keys.AXIS: at.axis.name}
    record = LogRecord(keys.EVENT_EXCEPTION, None, attributes, severity=ERROR)
    current_events().put("the end of the run", lambda: (record,))


def _full_name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"
