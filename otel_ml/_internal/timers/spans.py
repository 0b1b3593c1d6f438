"""The light path of spans: a timer's `with` object is its own span record; bytes are made in the background."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Mapping
from contextvars import ContextVar, Token
from typing import TYPE_CHECKING, Any, NamedTuple

from otel_ml._internal.error_reporting import answered, reporter
from otel_ml._internal.native import native
from otel_ml._internal.record.backpressure import BACKPRESSURE
from otel_ml._internal.run_scope import NOW, SCOPES
from otel_ml._internal.safe_repr import text_of
from otel_ml._internal.signature import MISSING
from otel_ml._internal.steps.axis import Axis, Step
from otel_ml._internal.timers.encode_spans import BEGINNING, encoded_marks, encoded_or_counted, encoded_spans
from otel_ml._internal.timers.span_arguments import attributes_of, is_id, say_unfit
from otel_ml._internal.timers.timer_definitions import TimerDefinition
from otel_ml._internal.timers.wall_offset import wall_offset
from otel_ml.wire.trace_context import half_of_role

if TYPE_CHECKING:
    from opentelemetry.trace import SpanContext

__all__ = [
    "MARKS",
    "MAX_LINKS",
    "MAX_WAITING",
    "SPANS",
    "STATE",
    "Recording",
    "collect",
    "configure",
    "forget",
    "keep",
    "leave",
    "mark",
    "name_traces",
]

MAX_WAITING = 50_000
"""Finished spans from which callers wait for the background thread: about 15 MB."""

MAX_LINKS = 128
"""Links kept of a span, as in OpenTelemetry's SDK."""

SPANS: list[Recording] = []
"""Finished spans; the background thread takes a prefix, as it does with records."""

MAX_MARKS = 10_000
"""Marks that wait for the background thread; further ones are left out."""

MARKS: list[Recording] = []
"""Spans of one moment that no timer measured: where something was produced, or consumed outside of any span."""


class Details:
    """What few spans have.

    Attributes:
        consumed: attributes of the links that `consumed()` made, by what their contexts have in common.
    """

    __slots__ = ("attributes", "consumed", "error", "events", "links", "name")

    def __init__(self) -> None:
        self.name: str | None = None
        self.error: str | None = None
        self.attributes: dict[str, object] = {}
        self.events: list[tuple[int, str, Mapping[str, object]]] = []
        self.links: list[tuple[int, int, Mapping[str, object]]] = []
        self.consumed: dict[str, dict[str, object]] = {}


class Recording:
    """A span while it is measured and until it is encoded. For OpenTelemetry it is a `Span`.

    `span_id` is 0 where no span is kept (over the budget, or tracing off): then nothing of it is visible.
    """

    __slots__ = ("begin_ns", "definition", "end_ns", "more", "parent_id", "span_id", "step", "token", "trace_id")

    definition: TimerDefinition
    step: Step
    begin_ns: int
    end_ns: int
    span_id: int
    trace_id: int
    parent_id: int
    token: Any
    more: Details | None

    @property
    def details(self) -> Details:
        """What few spans have, made when first needed."""
        if self.more is None:
            self.more = Details()
        return self.more

    # What follows is opentelemetry.trace.Span, for whoever asks for the current one.

    @answered
    def get_span_context(self) -> SpanContext:
        """Return the ids under which others nest."""
        from opentelemetry.trace import SpanContext, TraceFlags

        return SpanContext(self.trace_id, self.span_id, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))

    @answered
    def is_recording(self) -> bool:
        """Whether attributes still count."""
        return self.end_ns == 0

    @answered
    def set_attribute(self, key: str, value: object) -> None:
        """Add an attribute to the span."""
        if isinstance(key, str):
            self.details.attributes[key] = value
        else:
            say_unfit("set_attribute", "a name such as 'batch'", key)

    @answered
    def set_attributes(self, attributes: Mapping[str, object]) -> None:
        """Add attributes to the span."""
        for key, value in attributes_of("set_attributes", attributes).items():
            self.set_attribute(key, value)

    @answered
    def add_event(
        self, name: str, attributes: Mapping[str, object] | None = None, timestamp: int | None = None
    ) -> None:
        """Add an event to the span."""
        if not isinstance(name, str):
            say_unfit("add_event", "a name such as 'retry'", name)
            return
        at = timestamp if type(timestamp) is int and 0 < timestamp < 2**63 else time.time_ns()
        self.details.events.append((at, name, attributes_of("add_event", attributes)))

    @answered
    def record_exception(
        self,
        exception: BaseException,
        attributes: Mapping[str, object] | None = None,
        timestamp: int | None = None,
        escaped: bool = False,
    ) -> None:
        """Add an exception as an event."""
        if not isinstance(exception, BaseException):
            say_unfit("record_exception", "an exception", exception)
            return
        found = {"exception.type": type(exception).__qualname__, "exception.message": text_of(exception)}
        self.add_event("exception", {**found, **attributes_of("record_exception", attributes)}, timestamp)

    @answered
    def set_status(self, status: Any, description: str | None = None) -> None:
        """Mark the span as failed; other states are what a span without error has anyway."""
        if status is MISSING:
            say_unfit("set_status", "a Status of OpenTelemetry", status)
        try:
            code = getattr(status, "status_code", status)
            if getattr(code, "name", "") == "ERROR":
                found = getattr(status, "description", None) if description is None else description
                self.details.error = found if isinstance(found, str) else ""
        except Exception:  # noqa: BLE001 (of a class of the program's)
            say_unfit("set_status", "a Status of OpenTelemetry", status)

    @answered
    def update_name(self, name: str) -> None:
        """Rename the span, not the timer."""
        if isinstance(name, str):
            self.details.name = name
        else:
            say_unfit("update_name", "a name such as 'retry'", name)

    @answered
    def add_link(self, context: SpanContext, attributes: Mapping[str, object] | None = None) -> None:
        """Link the span to one that led to it: of another trace, process or role; the first 128 are kept."""
        try:
            trace_id, span_id = getattr(context, "trace_id", 0), getattr(context, "span_id", 0)
        except Exception:  # noqa: BLE001 (of a class of the program's)
            trace_id = span_id = 0
        if not is_id(trace_id, 128) or not is_id(span_id, 64):
            say_unfit("add_link", "what context() returns, or a SpanContext", context)
        elif len(self.details.links) < MAX_LINKS:
            self.details.links.append((trace_id, span_id, attributes_of("add_link", attributes)))

    @answered
    def end(self, end_time: int | None = None) -> None:
        """Ignore an end: the block decides."""


_ACTIVE: ContextVar[Recording | None] = ContextVar("otel_ml_span", default=None)


def _begin_alone(span: Recording) -> None:
    """Give `span` its ids and make it the current one of this context."""
    span.span_id = own = next(STATE.ids)
    parent = _ACTIVE.get()
    # Its ids first: a signal handler may time something as soon as it is the current one, and takes them from it.
    if parent is None:
        span.parent_id, span.trace_id = 0, STATE.trace_high | own
    else:
        span.parent_id, span.trace_id = parent.span_id, parent.trace_id
    span.token = _ACTIVE.set(span)


if native is not None:
    native.bind_alone(_begin_alone, _ACTIVE)


def _otel_begin() -> tuple[Callable[[Recording], None], Callable[[], Any]]:
    """Return what begins a span that OpenTelemetry sees, so that other people's and ours nest, and what finds both."""
    from opentelemetry import trace
    from opentelemetry.context import Context

    trace.Span.register(Recording)
    # The key under which a context has its span. Going through it, and not through get_current_span() and
    # set_span_in_context(), is half the cost: those check the span's type and copy the context twice.
    (key,) = trace.set_span_in_context(trace.INVALID_SPAN, Context())
    current = _otel_variable()
    get, attach = current.get, current.set

    def begin(span: Recording) -> None:
        span.span_id = own = next(STATE.ids)
        here = get()
        parent: Any = here.get(key)
        if parent is None:
            span.parent_id, span.trace_id = 0, STATE.trace_high | own
        # One of ours: its ids are attributes, where `get_span_context()` would make an object.
        elif type(parent) is type(span):
            span.parent_id, span.trace_id = parent.span_id, parent.trace_id
        else:
            outer = parent.get_span_context()
            span.parent_id, span.trace_id = outer.span_id, outer.trace_id or STATE.trace_high | own
        there = here.copy()
        there[key] = span
        span.token = attach(Context(there))

    if native is not None and isinstance(current, ContextVar):
        native.bind_opentelemetry(begin, current, key, Context)
    return begin, lambda: get().get(key)


def _otel_variable() -> Any:
    """Return what holds OpenTelemetry's current context: a `ContextVar`, unless the program brought its own kind.

    `attach()` says which one it set; to set it without OpenTelemetry's functions is a fifth of a timer less.
    """
    from opentelemetry.context import Context, attach, detach

    token: Any = attach(Context())
    detach(token)
    return token.var if isinstance(token, Token) else _OtherContext()


class _OtherContext:
    """OpenTelemetry's current context where `OTEL_PYTHON_CONTEXT` names one that is no `ContextVar`."""

    def __init__(self) -> None:
        from opentelemetry.context import attach, detach, get_current

        self.get, self._attach, self._detach = get_current, attach, detach

    def set(self, context: Any) -> _Attached:
        """Make `context` the current one."""
        return _Attached(self, self._attach(context))

    def reset(self, attached: _Attached) -> None:
        """Make the context before that one the current one again."""
        self._detach(attached.token)


class _Attached(NamedTuple):
    """What a `ContextVar` calls a token."""

    var: _OtherContext
    token: Any


def leave(span: Recording) -> None:
    """Make the span before `span` the current one again."""
    token = span.token
    span.token = None
    try:  # noqa: SIM105 - `suppress` costs more than what is in it
        token.var.reset(token)
    except ValueError:
        pass  # left in another context than entered (a generator closed elsewhere): that context is gone


def keep(span: Recording) -> None:
    """Hand a finished span over; its `end_ns` is set."""
    while len(SPANS) >= MAX_WAITING:
        if not BACKPRESSURE.wait():
            reporter.dropped["spans_not_collected"] += 1
            return
    SPANS.append(span)


def mark(name: str, step: Step, trace_id: int, span_id: int, parent_id: int) -> Recording | None:
    """Keep a span of this moment, within the budget of its step; None where there is no room for it."""
    if step.spans >= STATE.budget or len(MARKS) >= MAX_MARKS:
        return None
    step.spans += 1
    made = Recording()
    made.step, made.trace_id, made.span_id, made.parent_id = step, trace_id, span_id, parent_id
    made.begin_ns = made.end_ns = time.perf_counter_ns()
    made.more = Details()
    made.more.name = name
    MARKS.append(made)
    return made


class _State:
    """Process-wide state of the span path.

    Attributes:
        budget: spans kept per step; 0 keeps none.
        begin: gives a span its ids and makes it the current one.
        current: returns the span that is current in this context: one of ours, one of OpenTelemetry's, or None.
        ids: the ids of spans, of which no other one of this process has the next.
        trace_high: the upper half of the ids of all traces of this process: random, and in a run its role.
        collected: spans encoded since the process began.
        offset_ns: from `perf_counter_ns()` to the epoch, looked at in every collection.
    """

    __slots__ = ("begin", "budget", "collected", "current", "ids", "offset_ns", "trace_high")

    def __init__(self) -> None:
        self.budget = 100
        self.begin: Callable[[Recording], None] = _begin_alone
        self.current: Callable[[], Any] = _ACTIVE.get
        self.trace_high = int.from_bytes(os.urandom(8), "big") << 64
        self.restart()

    def restart(self) -> None:
        """Draw new ids, from the system: a program that seeds `random` must not give ranks equal ids."""
        # 63 bits, so that counting on needs no mask; never 0, which is not an id.
        self.ids = itertools.count(1 + (int.from_bytes(os.urandom(8), "big") >> 1))
        self.offset_ns = wall_offset()
        self.collected = 0


STATE = _State()


def configure(budget: int, *, otel_tracing: bool) -> None:
    """Keep `budget` spans per step; with `otel_tracing`, nest with OpenTelemetry's own spans."""
    STATE.budget = budget
    STATE.begin, STATE.current = _otel_begin() if otel_tracing else (_begin_alone, _ACTIVE.get)


def name_traces(role: str) -> None:
    """Have the ids of traces that begin from now on say their role."""
    STATE.trace_high = half_of_role(role) << 64


def forget() -> None:
    """Drop finished spans and draw new ids: a forked child is a writer of its own."""
    SPANS.clear()
    MARKS.clear()
    STATE.restart()


def collect(generation: int, settle: Callable[[], None]) -> tuple[bytes, ...]:
    """Take the finished spans of a run as bodies of ScopeSpans: of timers, and of marks; empty where there are none.

    Args:
        generation: of the run's steps.
        settle: is called when spans were taken: it adds to them what was said before they ended.
    """
    STATE.offset_ns = wall_offset(STATE.offset_ns)
    taken = _take(SPANS, generation)
    if taken:
        settle()
    marks = _take(MARKS, generation)
    BACKPRESSURE.took()
    STATE.collected += len(taken)
    encoded = ((encoded_spans, taken), (encoded_marks, marks))
    return tuple(body for encode, some in encoded if some for body in encoded_or_counted(encode, some, STATE.offset_ns))


def _take(spans: list[Recording], generation: int) -> list[Recording]:
    n = len(spans)
    if not n:
        return []
    taken = spans[:n]
    del spans[:n]
    if NOW.several:
        # Those of other runs that go on are put back; of a run that is over nobody would take them.
        spans.extend([span for span in taken if span.step.generation != generation and SCOPES.of(span.step.generation)])
        taken = [span for span in taken if span.step.generation == generation]
    return taken


if native is not None:
    encoded_spans = native.span_encoder(encoded_spans, BEGINNING, Recording, TimerDefinition, Step, Axis)
