"""The light path of spans: a timer's `with` object is its own span record; bytes are made in the background."""

from __future__ import annotations

import itertools
import os
import struct
import time
from collections.abc import Mapping
from contextlib import suppress
from contextvars import ContextVar, Token
from typing import TYPE_CHECKING, Any

from otel_ml._internal.guard import guard
from otel_ml.wire.protobuf import field, key_value, text
from otel_ml._internal.step import Step
from otel_ml.wire.attributes import AXIS, SCOPE, STEP, TIMER_LEVEL

if TYPE_CHECKING:
    from opentelemetry.trace import SpanContext

__all__ = ["SPANS", "Recording", "begin", "collect", "configure", "end", "forget"]

_MAX_WAITING = 50_000
"""Finished spans kept while nobody collects: about 15 MB."""

SPANS: list[Recording] = []
"""Finished spans; the background thread takes a prefix, as it does with records."""

_ACTIVE: ContextVar[Recording | None] = ContextVar("otel_ml_span", default=None)


class _State:
    """Process-wide settings of the span path.

    Attributes:
        budget: spans kept per step; 0 keeps none.
        otel: OpenTelemetry's context is used, so that other people's spans and ours nest.
        offset_ns: from `perf_counter_ns()` to the epoch, renewed at every collection.
    """

    __slots__ = ("base", "begun", "budget", "count", "offset_ns", "otel", "trace_high")

    def __init__(self) -> None:
        self.budget = 100
        self.otel: _OtelContext | None = None
        self.begun = 0
        self.restart()

    def restart(self) -> None:
        """Draw new ids, from the system: a program that seeds `random` must not give ranks equal ids."""
        self.base = int.from_bytes(os.urandom(8), "big")
        self.trace_high = int.from_bytes(os.urandom(8), "big") << 64
        self.count = itertools.count(1).__next__
        self.offset_ns = time.time_ns() - time.perf_counter_ns()


STATE = _State()


class Recording:
    """A span while it is measured and until it is encoded. For OpenTelemetry it is a `Span`.

    `span_id` is 0 where no span is kept (over the budget, or tracing off): then nothing of it is visible.
    """

    __slots__ = (
        "attributes", "begin_ns", "end_ns", "error", "events", "level", "name", "parent_id",
        "span_id", "step", "token", "trace_id",
    )  # fmt: skip

    name: str
    level: int
    step: Step
    begin_ns: int
    end_ns: int
    span_id: int
    trace_id: int
    parent_id: int
    attributes: dict[str, object] | None
    events: list[tuple[int, str, dict[str, object]]] | None
    error: str | None
    token: Any

    # What follows is opentelemetry.trace.Span, for whoever asks for the current one.

    def get_span_context(self) -> SpanContext:
        """Return the ids under which others nest."""
        from opentelemetry.trace import SpanContext, TraceFlags

        return SpanContext(self.trace_id, self.span_id, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))

    def is_recording(self) -> bool:
        """Whether attributes still count."""
        return self.end_ns == 0

    def set_attribute(self, key: str, value: object) -> None:
        """Add an attribute to the span."""
        if self.attributes is None:
            self.attributes = {}
        self.attributes[key] = value

    def set_attributes(self, attributes: Mapping[str, object]) -> None:
        """Add attributes to the span."""
        for key, value in attributes.items():
            self.set_attribute(key, value)

    def add_event(
        self, name: str, attributes: Mapping[str, object] | None = None, timestamp: int | None = None
    ) -> None:
        """Add an event to the span."""
        if self.events is None:
            self.events = []
        self.events.append((timestamp or time.time_ns(), name, dict(attributes or {})))

    def record_exception(
        self,
        exception: BaseException,
        attributes: Mapping[str, object] | None = None,
        timestamp: int | None = None,
        escaped: bool = False,
    ) -> None:
        """Add an exception as an event."""
        found = {"exception.type": type(exception).__qualname__, "exception.message": str(exception)}
        self.add_event("exception", {**found, **(attributes or {})}, timestamp)

    def set_status(self, status: Any, description: str | None = None) -> None:
        """Mark the span as failed; other states are what a span without error has anyway."""
        code = getattr(status, "status_code", status)
        if getattr(code, "name", "") == "ERROR":
            self.error = description or getattr(status, "description", None) or ""

    def update_name(self, name: str) -> None:
        """Rename the span, not the timer."""
        self.name = name

    def add_link(self, context: SpanContext, attributes: Mapping[str, object] | None = None) -> None:
        """Ignore a link: a timer has none."""

    def end(self, end_time: int | None = None) -> None:
        """Ignore an end: the block decides."""


class _OtelContext:
    """OpenTelemetry's context, imported only where tracing is used."""

    __slots__ = ("attach", "current_span", "detach", "get_current", "with_span")

    def __init__(self) -> None:
        from opentelemetry import context, trace

        trace.Span.register(Recording)
        self.attach = context.attach
        self.detach = context.detach
        self.get_current = context.get_current
        self.current_span = trace.get_current_span
        self.with_span = trace.set_span_in_context


def configure(budget: int, *, otel_tracing: bool) -> None:
    """Keep `budget` spans per step; with `otel_tracing`, nest with OpenTelemetry's own spans."""
    STATE.budget = budget
    STATE.otel = _OtelContext() if otel_tracing else None


def forget() -> None:
    """Drop finished spans and draw new ids: a forked child is a writer of its own."""
    SPANS.clear()
    STATE.begun = 0
    STATE.restart()


def begin(span: Recording) -> None:
    """Give `span` its ids and make it the current one of this context."""
    state = STATE
    state.begun += 1
    span.span_id = own = (state.base + state.count()) & 0xFFFF_FFFF_FFFF_FFFF or 1
    otel = state.otel
    if otel is None:
        parent = _ACTIVE.get()
        span.token = _ACTIVE.set(span)
    else:
        context = otel.get_current()
        found = otel.current_span(context)
        parent = found if isinstance(found, Recording) else None
        span.token = otel.attach(otel.with_span(span, context))  # type: ignore[arg-type]
        if parent is None:
            outer = found.get_span_context()
            span.parent_id, span.trace_id = outer.span_id, outer.trace_id or state.trace_high | own
            return
    if parent is None:
        span.parent_id, span.trace_id = 0, state.trace_high | own
    else:
        span.parent_id, span.trace_id = parent.span_id, parent.trace_id


def leave(span: Recording) -> None:
    """Make the span before `span` the current one again."""
    token = span.token
    span.token = None
    if isinstance(token, Token) and token.var is _ACTIVE:
        # Left in another context than entered (a generator closed elsewhere): that context is gone.
        with suppress(ValueError):
            _ACTIVE.reset(token)
    elif STATE.otel is not None and token is not None:
        STATE.otel.detach(token)


def end(span: Recording) -> None:
    """Hand a finished span over; its `end_ns` is set."""
    if len(SPANS) < _MAX_WAITING:
        SPANS.append(span)
    else:
        guard.dropped["spans_not_collected"] += 1


_IDS = struct.Struct(">BB16sBBQ").pack
_PARENT = struct.Struct(">BBQ").pack
_KIND_TIMES = struct.Struct("<BBBQBQ").pack
_SCOPE = field(1, text(1, SCOPE))
_INTERNAL = 1


def collect() -> tuple[bytes, ...]:
    """Take the finished spans as the body of a ScopeSpans; empty where there are none."""
    STATE.offset_ns = time.time_ns() - time.perf_counter_ns()
    n = len(SPANS)
    if not n:
        return ()
    taken = SPANS[:n]
    del SPANS[:n]
    parts = [_SCOPE]
    known: dict[tuple[Step, int], bytes] = {}
    for span in taken:
        key = (span.step, span.level)
        attributes = known.get(key)
        if attributes is None:
            attributes = known[key] = _step_attributes(*key)
        parts.append(field(2, _encoded(span, attributes)))
    return (b"".join(parts),)


def _step_attributes(step: Step, level: int) -> bytes:
    out = field(9, key_value(TIMER_LEVEL, level))
    if step.axis is not None and step.index is not None:
        out += field(9, key_value(STEP, step.index)) + field(9, key_value(AXIS, step.axis.name))
    return out


def _encoded(span: Recording, attributes: bytes) -> bytes:
    offset = STATE.offset_ns
    body = [_IDS(0x0A, 16, span.trace_id.to_bytes(16, "big"), 0x12, 8, span.span_id)]
    if span.parent_id:
        body.append(_PARENT(0x22, 8, span.parent_id))
    body.append(text(5, span.name))
    body.append(_KIND_TIMES(0x30, _INTERNAL, 0x39, span.begin_ns + offset, 0x41, span.end_ns + offset))
    body.append(attributes)
    if span.attributes:
        body.extend(field(9, key_value(key, value)) for key, value in span.attributes.items())
    if span.events:
        body.extend(field(11, _event(*event)) for event in span.events)
    if span.error is not None:
        body.append(field(15, text(2, span.error) + b"\x18\x02"))
    return b"".join(body)


def _event(time_ns: int, name: str, attributes: Mapping[str, object]) -> bytes:
    pairs = b"".join(field(3, key_value(key, value)) for key, value in attributes.items())
    return b"\x09" + time_ns.to_bytes(8, "little") + text(2, name) + pairs
