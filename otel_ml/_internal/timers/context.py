"""`context()`: a name of what happens here, small enough to travel with every sample, batch and set of weights."""

from __future__ import annotations

import itertools
import os
from collections.abc import Hashable
from typing import Any

from otel_ml._internal.error_reporting import answered, reporter
from otel_ml._internal.run_scope import NOW, SCOPES, Scope, current_scope
from otel_ml._internal.safe_repr import safe_repr
from otel_ml._internal.series.buffer import begin_run
from otel_ml._internal.signature import public, public_type, publish
from otel_ml._internal.steps.axes import current_step
from otel_ml._internal.steps.axis import Step
from otel_ml._internal.steps.step import step_of
from otel_ml._internal.timers.spans import STATE, mark
from otel_ml.wire.attributes import VERSION
from otel_ml.wire.trace_context import (
    MAX_VERSION,
    Producer,
    half_of_role,
    ids_of,
    key_of,
    producer_of,
    span_half,
    traceparent,
)

__all__ = ["NOWHERE", "Context", "context", "forget_contexts", "ids_of_span", "new_mark_id", "version_of"]

_MOST = 1024
"""Contexts that are remembered, so that all samples of a span share one."""


@public_type
class Context(str):
    """What `context()` returns: a W3C `traceparent` of 55 characters that names a span, a role, a rank and a version.

    It is a `str`: it can be pickled, is a value of an HTTP header and of JSON, and comes through any queue. `bytes()`
    of it are its characters. A plain `str` of the same characters is the same to `consumed()`.
    """

    __slots__ = ()

    def __bytes__(self) -> bytes:
        return self.encode()

    @property
    def role(self) -> str | None:
        """The first ten letters of the role that made it; None where another tracer did."""
        return None if self._producer is None else self._producer.role

    @property
    def rank(self) -> int | None:
        """The rank that made it, where it is known."""
        return None if self._producer is None else self._producer.rank

    @property
    def version(self) -> int | None:
        """The version that it was given, or None."""
        return None if self._producer is None else self._producer.version

    @property
    def trace_id(self) -> int:
        """Of the span that it names; with `span_id` it is what `Span.add_link()` of a timer takes."""
        return (ids_of(self) or (0, 0))[0]

    @property
    def span_id(self) -> int:
        """Of the span that it names."""
        return (ids_of(self) or (0, 0))[1]

    @property
    def _producer(self) -> Producer | None:
        ids = ids_of(self)
        return None if ids is None or not all(ids) else producer_of(key_of(self))


NOWHERE = Context(traceparent(0, 0))
"""Where nothing is recorded: W3C's `traceparent` that is none."""


class _Made:
    """Contexts that were made, and ids for more."""

    def __init__(self) -> None:
        self.contexts: dict[Hashable, Context] = {}
        # A counter in C, so no two threads have the same id; it begins anywhere, so no two processes do.
        self.next_id = itertools.count(1 + (int.from_bytes(os.urandom(8), "big") >> 1)).__next__


_MADE = _Made()


def forget_contexts() -> None:
    """Make new ones, with ids that no other process has."""
    _MADE.__init__()  # type: ignore[misc] # the same object, which others hold


def new_mark_id() -> int:
    """Return an id for a span that is none of a timer."""
    return _MADE.next_id()


@public
@publish("version")
@answered
def context(version: int | None = None) -> Context:
    """Return what names this moment for others: the current span, step, role, rank, and a version.

    Let it travel with what is made here: a sample, a batch, a set of weights. Whoever takes that in calls
    `consumed()`, and the run then says what each step was made of, and by whom.

    Costs about a microsecond; all contexts of one span and version are one object. Where nothing is recorded it names
    nothing.

    Args:
        version: what it is made with, from 0 to 16,777,214: the version of the policy, for instance.

    Examples:
        >>> import otel_ml
        >>> from otel_ml.testing import capture
        >>> with capture():
        ...     made = otel_ml.context(version=390)
        >>> len(made), made.role, made.rank, made.version
        (55, 'trainer', 0, 390)
    """
    if NOW.off:
        return NOWHERE
    try:
        scope = _scope()
        return NOWHERE if scope is None else _context(scope, version_of(version, "context()"))
    except Exception as error:  # noqa: BLE001 - the boundary to the user's program
        reporter.failed("context()", error)
        return NOWHERE


def _scope() -> Scope | None:
    if NOW.several:
        return current_scope()
    # A run that is only waited for, as that of rank 0, has no scope yet.
    return SCOPES.active[0] if SCOPES.active or (begin_run() and SCOPES.active) else None


def version_of(version: object, call: str) -> int | None:
    """Return a version; None (said) where it is none."""
    if version is None:
        return None
    # A version is often a step of the axis of versions: what counts as one does here.
    found = step_of(version)
    if found is not None and found <= MAX_VERSION:
        return found
    reporter.wrong(
        "bad-version",
        f"{call}: expected a version that is a whole number from 0 to {MAX_VERSION:,}, got {safe_repr(version)}. "
        "Without it no staleness is known.",
        kind=f"version of {call}",
    )
    return None


def _context(scope: Scope, version: int | None) -> Context:
    step = NOW.step or current_step()
    around = STATE.current()
    trace_id, span_id = ids_of_span(around)
    # All that a context names: whoever asks in the same place gets the same object, and one mark is kept for it.
    key = (span_id, step, version, scope)
    found = _MADE.contexts.get(key)
    if found is None:
        if len(_MADE.contexts) >= _MOST:
            # All at once: one that is needed again is made anew, which costs a microsecond.
            _MADE.contexts.clear()
        found = _MADE.contexts[key] = _new(scope, step, version, trace_id, span_id)
    return found


def ids_of_span(span: Any) -> tuple[int, int]:
    """Return the ids of a current span; zeros of none."""
    if span is None:
        return 0, 0
    ids = span if hasattr(span, "span_id") else span.get_span_context()
    return ids.trace_id, ids.span_id


def _new(scope: Scope, step: Step, version: int | None, outer_trace: int, outer: int) -> Context:
    """Make a context, and the span that it names: one of this moment, inside of the current one."""
    role, rank = scope.place
    # The trace says the role, the span rank and version: whoever consumes it needs no more than the text.
    half, number = half_of_role(role), new_mark_id()
    is_inside = outer_trace >> 64 == half  # the trace of somebody else does not say whose it is
    trace_id = outer_trace if is_inside else half << 64 | number
    span_id = span_half(half, rank, version, number)
    made = mark("produced", step, trace_id, span_id, outer if is_inside else 0)
    if made is not None:
        if version is not None:
            made.set_attribute(VERSION, version)
        if outer and not is_inside:
            made.details.links.append((outer_trace, outer, {}))
    return Context(traceparent(trace_id, span_id))
