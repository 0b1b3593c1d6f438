"""The step on users' own OpenTelemetry spans."""

from __future__ import annotations

from opentelemetry.context import Context
from opentelemetry.sdk.trace import Span, SpanProcessor

from otel_ml._internal.steps.axes import current_step
from otel_ml.wire.attributes import AXIS, STEP

__all__ = ["StepStampProcessor"]


class StepStampProcessor(SpanProcessor):
    """Sets `ml.step` and `ml.step.axis` on every span that begins while a step is current."""

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Stamp a span that has begun."""
        step = current_step()
        if step.axis is not None and step.index is not None:
            span.set_attribute(STEP, step.index)
            span.set_attribute(AXIS, step.axis.name)
