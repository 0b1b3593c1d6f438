"""The span of a timer that does not measure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opentelemetry.trace import SpanContext

__all__ = ["NO_SPAN", "NoSpan"]


class NoSpan:
    """What `with timed(…) as span` gives where nothing is measured: it takes what a span takes, and keeps nothing."""

    __slots__ = ()

    span_id = trace_id = 0

    def __bool__(self) -> bool:
        return False

    def get_span_context(self, *_: object, **__: object) -> SpanContext:
        """Return ids that are none."""
        from opentelemetry.trace import INVALID_SPAN_CONTEXT

        return INVALID_SPAN_CONTEXT

    def is_recording(self, *_: object, **__: object) -> bool:
        """Return that nothing counts."""
        return False

    def set_attribute(self, *_: object, **__: object) -> None:
        """Do nothing, as all that follows."""

    set_attributes = add_event = record_exception = set_status = update_name = add_link = end = set_attribute


NO_SPAN = NoSpan()
