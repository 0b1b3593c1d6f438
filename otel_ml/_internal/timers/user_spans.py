"""Users' own OpenTelemetry spans: they join the run, and carry its step.

Where no TracerProvider is set, ours is; where one is, a span processor stamps the step. A program that never
imports `opentelemetry.trace` pays nothing: the SDK costs 60 ms to import, and is loaded when that module is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from otel_ml._internal.error_reporting import reporter
from otel_ml._internal.record.backpressure import BACKPRESSURE
from otel_ml._internal.safe_repr import text_of
from otel_ml._internal.when_imported import forget_import, when_imported

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

__all__ = ["Tracing"]

_MODULE = "opentelemetry.trace"

MAX_SPANS = 10_000
"""Finished spans between two looks of the background thread; OTel's own queue holds 2048."""


class Tracing:
    """The link between this process' OTel tracing and the run.

    Args:
        resource: attributes of the TracerProvider, should one have to be set.
        on_use: called when the process begins to use OTel tracing.
    """

    def __init__(self, resource: Callable[[], dict[str, Any]], on_use: Callable[[], None]) -> None:
        self._resource = resource
        self._on_use = on_use
        self._is_active = False
        self._is_bound = False
        self._ended: deque[ReadableSpan] = deque()

    def activate(self) -> None:
        """Bind to OTel tracing now if the process uses it, else when it begins to."""
        self._is_active = True
        # At a further run: `Recorder.configure()` has just put timers back to spans that OpenTelemetry does not see.
        if self._is_bound:
            self._on_use()
        else:
            when_imported(_MODULE, self.bind)

    def deactivate(self) -> None:
        """Stamp and keep nothing more; OTel has no way to take a processor away."""
        self._is_active = False
        self._ended.clear()
        forget_import(_MODULE)

    def forget(self) -> None:
        """Drop the parent's spans, in a forked child."""
        self._ended = deque()

    def bind(self) -> None:
        """Install our TracerProvider, or add a processor to the one that is there."""
        if self._is_bound or not self._is_active:
            return
        self._is_bound = True
        try:
            self._bind()
            self._on_use()
        except Exception as error:  # noqa: BLE001 (a foreign or half-installed SDK must not stop training)
            reporter.say(
                "tracing",
                f"OpenTelemetry tracing is not connected to the run: {type(error).__name__}: {error}.",
            )

    def _bind(self) -> None:
        from opentelemetry import trace
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import SpanProcessor, TracerProvider

        from otel_ml._internal.timers.step_span_processor import StepStampProcessor

        tracing = self

        class Keep(SpanProcessor):
            """Keeps finished spans for the background thread."""

            def on_end(self, span: ReadableSpan) -> None:
                tracing.keep(span)

        provider = trace.get_tracer_provider()
        if isinstance(provider, TracerProvider):
            provider.add_span_processor(StepStampProcessor())
        # What the API has while nobody has set a provider. One of any other kind is not the SDK's, and takes no
        # processors.
        elif type(provider).__name__ == "ProxyTracerProvider":
            ours = TracerProvider(resource=Resource(self._resource()), shutdown_on_exit=False)
            ours.add_span_processor(StepStampProcessor())
            ours.add_span_processor(Keep())
            trace.set_tracer_provider(ours)

    def keep(self, span: ReadableSpan) -> None:
        """Queue a finished span for sending; where too many wait, it is dropped and counted."""
        if not self._is_active or span.context is None or not span.context.trace_flags.sampled:
            return
        while len(self._ended) >= MAX_SPANS:
            if not BACKPRESSURE.wait():
                reporter.dropped["span_queue_full"] += 1
                return
        self._ended.append(span)

    def take(self) -> list[bytes]:
        """Return the finished spans as bodies of ScopeSpans; one that cannot be encoded is counted, and lost alone."""
        ended: list[ReadableSpan] = []
        with suppress(IndexError):  # there are no more
            # What was taken before an IndexError stays in the list.
            ended.extend(self._ended.popleft() for _ in range(len(self._ended)))
        if not ended:
            return []
        BACKPRESSURE.took()
        try:
            return _encoded(ended)
        except Exception:  # noqa: BLE001 (which one it is, and why, is found out one by one)
            return [body for span in ended for body in _encoded_or_counted(span)]


def _encoded(spans: Sequence[ReadableSpan]) -> list[bytes]:
    from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans

    request = encode_spans(spans)
    return [scope.SerializeToString() for resource in request.resource_spans for scope in resource.scope_spans]


def _encoded_or_counted(span: ReadableSpan) -> list[bytes]:
    try:
        return _encoded([span])
    except Exception as error:  # noqa: BLE001 (a foreign SDK must not take with it what was recorded beside it)
        reporter.dropped["spans_not_encoded"] += 1
        sentence = f"Spans cannot be encoded, and are lost (spans_not_encoded): {text_of(error)}."
        reporter.say("spans-not-encoded", sentence, kind="spans-not-encoded")
        return []
