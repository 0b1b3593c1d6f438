"""`consumed()`: which contexts a step was made of. Callers append; the background thread counts, and links spans."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from otel_ml._internal.error_reporting import answered, reporter
from otel_ml._internal.record.after_shutdown import AFTER_SHUTDOWN
from otel_ml._internal.record.append import append
from otel_ml._internal.run_scope import NOBODY, NOW, SCOPES
from otel_ml._internal.safe_repr import safe_repr
from otel_ml._internal.series.definition import DEFINITIONS, Series, identity
from otel_ml._internal.signature import public, publish
from otel_ml._internal.steps.axes import current_step, scope_steps
from otel_ml._internal.steps.axis import Step
from otel_ml._internal.timers.context import forget_contexts, ids_of_span, new_mark_id, version_of
from otel_ml._internal.timers.spans import MAX_LINKS, STATE, Details, Recording, mark
from otel_ml.wire.attributes import CONSUMED, RANK, ROLE, VERSION
from otel_ml.wire.reduction import Reduction
from otel_ml.wire.trace_context import Producer, ids_of, key_of, producer_of, traceparent

__all__ = ["AXIS_OF_VERSIONS", "calls_left", "consumed", "forget_consumed", "settle_consumed"]

AXIS_OF_VERSIONS = "policy_version"
"""The axis whose current step is the consumer's own version, where it has one and says no other."""

MAX_PRODUCERS = 256
"""Producers of which a process publishes series of their own."""

_MOST_KEYS = 1024
"""Producers and versions told apart at a step of a process between two looks; further ones count together."""

_AT_ONCE = 4096
"""Contexts of one call from which the caller counts them: nothing is kept of each then."""

_KEY = 30
"""Characters of a key of ours; a context of another tracer is its own key."""

_WAIT_S = 1.0
"""Seconds that the background thread waits for who is counting: to count all that is kept takes some milliseconds."""

_BAD = "bad"
"""The key of what is not a context."""

_STRIDE = 4
_LIMIT = _STRIDE * 8192
"""Items from which a caller counts them itself."""

_CALLS: list[Any] = []
"""(step, span, version, contexts) of each call, flat as records are: callers append, a prefix is taken."""


class _Group(NamedTuple):
    """Contexts with the same key: how many, and one of them."""

    size: int
    example: str


_Groups = dict[str, _Group]


@public
@publish("contexts")
@answered
def consumed(contexts: Any, version: int | None = None) -> None:
    """Say what this step is made of: the contexts that came with samples, batches or weights.

    Published are, in all and for each producer (`…/generator/3`), `consumed/samples`, `consumed/version` and
    `consumed/staleness`: how far the consumer's version is ahead. The current span is linked to what was consumed,
    with a count for each producer and version; outside of spans there is one of that moment.

    Never raises; what is not a context is counted (`bad_context`) and said once. It costs the caller less than a
    microsecond a call and a few nanoseconds a context.

    Args:
        contexts: of each sample the `otel_ml.context()` that came with it, or its `traceparent` as text, bytes or in
            headers; or a single one.
        version: of the consumer, from which staleness is counted; by default the step on the axis `policy_version`,
            where there is one.

    Examples:
        >>> import otel_ml
        >>> from otel_ml.testing import capture
        >>> with capture() as run:
        ...     sample = otel_ml.context(version=7)
        ...     otel_ml.set_step(9)
        ...     otel_ml.consumed([sample, sample], version=9)
        ...     print(run.values("consumed/staleness"))
        [2.0]
    """
    if NOW.off:
        return
    try:
        given = _given(contexts)
        if given is None:
            return
        if AFTER_SHUTDOWN.is_now:  # the buffer refuses records by itself; this one would wait here for the next run
            AFTER_SHUTDOWN.refuse(1)
            return
        if version is not None:
            version = version_of(version, "consumed()")
        else:
            axis = scope_steps().axes.get(AXIS_OF_VERSIONS)
            version = None if axis is None or axis.current is None else axis.current.index
        calls = _CALLS
        # One call of C, as with records: nothing of another thread comes between the four.
        calls += (NOW.step or current_step(), _span(), version, given)
        if len(calls) > _LIMIT:
            # Not waited for: this may be a signal handler, on the thread that counts.
            settle_consumed(wait=False)
    except Exception as error:  # noqa: BLE001 - the boundary to the user's program
        reporter.failed("consumed()", error)


def _given(contexts: Any) -> Any:
    """Return what of a call is kept: one context, a tuple of them, or how many there are of each kind; None of none."""
    kind = type(contexts)
    if kind is not list and kind is not tuple:
        # A text, bytes and headers can be iterated over, too, and are one context each.
        if isinstance(contexts, (str, bytes, Mapping)) or not _is_several(contexts) or _is_ids(contexts):
            return (contexts,) if contexts is None else contexts  # None alone would say that there is nothing to keep
        contexts = tuple(contexts)
    if len(contexts) > _AT_ONCE:
        return _grouped(contexts)
    return contexts[0] if len(contexts) == 1 else tuple(contexts) or None


def _is_several(contexts: Any) -> bool:
    try:
        iter(contexts)
    except Exception:  # noqa: BLE001 (one thing, or one of the program's that cannot be read)
        return False
    return True


def _is_ids(context: Any) -> bool:
    try:
        return hasattr(context, "span_id") and hasattr(context, "trace_id")
    except Exception:  # noqa: BLE001 (whatever an object of the program raises, it is not a context)
        return False


def _span() -> Recording | tuple[int, int]:
    """Return the span to be linked: one of ours, or the ids of another's; (0, 0) where there is none."""
    span = STATE.current()
    if not isinstance(span, Recording):
        return ids_of_span(span)
    if span.more is None:
        span.more = Details()  # here, since two threads must not both make them
    return span


class _Settling:
    """Who counts at the moment; one at a time."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.series: dict[tuple[str, int] | None, tuple[Series | None, ...]] = {}


_SETTLING = _Settling()


def forget_consumed() -> None:
    """Start with nothing consumed, and with a lock nobody holds."""
    _CALLS.clear()
    _SETTLING.__init__()  # type: ignore[misc] # the same object, which others hold
    forget_contexts()


def calls_left() -> int:
    """Return how many calls wait to be counted."""
    return len(_CALLS) // _STRIDE


def settle_consumed(*, wait: bool = True) -> None:
    """Make records and links of what was consumed until now; not where somebody is at it, unless `wait`."""
    lock = _SETTLING.lock  # where the run ends meanwhile, it gets another one
    # Not for ever: a signal handler that ends the run may have interrupted who counts, and waits for this thread.
    if not _CALLS or not lock.acquire(timeout=_WAIT_S if wait else 0.0):
        return
    try:
        # The length is read once: what is appended meanwhile stays for the next look.
        n = len(_CALLS)
        part = _CALLS[:n]
        del _CALLS[:n]
        for (step, _, version), (span, given) in _by_place(part).items():
            groups = _grouped(given)
            if _BAD in groups:
                _refuse(step, groups.pop(_BAD))
            if groups:
                _record(step, version, groups)
                _link(step, span, groups)
    finally:
        lock.release()


def _by_place(part: list[Any]) -> dict[tuple[Step, int, Any], tuple[Any, list[Any]]]:
    """Sort calls by step, span and version."""
    found: dict[tuple[Step, int, Any], tuple[Any, list[Any]]] = {}
    calls = iter(part)
    # One iterator four times: its items are taken four by four.
    for step, span, version, given in zip(calls, calls, calls, calls, strict=True):
        key = (step, id(span) if isinstance(span, Recording) else span[1], version)
        found.setdefault(key, (span, []))[1].append(given)
    return found


def _grouped(given: Iterable[Any]) -> _Groups:
    """Count contexts by what those of one producer and version have in common."""
    groups: _Groups = {}
    single: list[Any] = []
    for one in given:
        if type(one) is tuple:
            _add(groups, one)
        # What a caller has counted itself, as of a call with many contexts; any other dictionary is headers.
        elif type(one) is dict and one and type(next(iter(one.values()))) is _Group:
            for key, group in one.items():
                _add_group(groups, key, group)
        else:
            single.append(one)
    _add(groups, single)
    return groups


def _add(groups: _Groups, contexts: Iterable[Any]) -> None:
    try:
        counts: Mapping[Any, int] = Counter(contexts)
    except Exception:  # noqa: BLE001 - headers have no hash, and that of another type may raise anything
        counts = Counter([_text(context) or safe_repr(context) for context in contexts])
    keyed: dict[str, int] = {}
    for context, count in counts.items():
        # Ours differ in a number alone where the key is the same: the first of a key is read, the others are counted.
        if isinstance(context, str) and (key := key_of(context)) in keyed:
            keyed[key] += count
        elif (group := _read(context, count)) is not None and group[0] == key_of(group[1].example):
            # It is among the groups already: counted here are those that follow with the same key.
            keyed[group[0]] = 0
            _add_group(groups, *group)
        else:
            _add_group(groups, *(group or (_BAD, _Group(count, safe_repr(context)))))
    for key, count in keyed.items():
        if count:
            _add_group(groups, key, _Group(count, ""))  # the one there, or the one of all further keys, has an example


def _read(context: Any, count: int) -> tuple[str, _Group] | None:
    """Return a context's key, and it; None of what is none. The key of one of another tracer is its ids."""
    text = _text(context)
    ids = None if text is None else ids_of(text)
    if text is None or ids is None:
        return None
    # What `context()` returns where nothing is recorded (`NOWHERE`): a sample that names no producer.
    if not all(ids):
        return "", _Group(count, text)
    key = key_of(text)
    # Of `00-<trace>-<span>-01` that is both ids.
    return (key if producer_of(key) else text[3:52]), _Group(count, text)


def _add_group(groups: _Groups, key: str, group: _Group) -> None:
    before = groups.get(key)
    if before is None and len(groups) >= _MOST_KEYS:
        key, before = "", groups.get("")
    groups[key] = group if before is None else _Group(before.size + group.size, before.example)


def _text(context: Any) -> str | None:
    try:
        if isinstance(context, Mapping):
            context = context.get("traceparent")
        if isinstance(context, bytes):
            context = context.decode("ascii", "replace")
        if isinstance(context, str):
            return context
        return traceparent(context.trace_id, context.span_id) if _is_ids(context) else None
    except Exception:  # noqa: BLE001 - whatever an object of the program raises, it is not a context
        return None


def _refuse(step: Step, bad: _Group) -> None:
    """Count and say what is not a context; not raised in strict mode, since it is found in the background."""
    dropped = (SCOPES.of(step.generation) or NOBODY).dropped if NOW.several else reporter.dropped
    dropped["bad_context"] += bad.size
    reporter.say(
        "bad-context",
        f"consumed(): expected what context() returns, or a W3C traceparent, got {bad.example}. It is not counted. "
        "Pass on what came with each sample.",
        kind="a context that is none",
    )


def _record(step: Step, version: int | None, groups: _Groups) -> None:
    """Record how many things were consumed, of which versions, and how stale they were."""
    # It is made at a look, after the step perhaps: its time is not to be later than the step's.
    time_ns = step.ended_ns if step.ended and step.index is not None else time.time_ns()
    records: list[Any] = []
    for key, (count, _) in groups.items():
        producer = producer_of(key) if len(key) == _KEY else None
        # Of a producer without series of its own both are the same, and it is recorded once.
        for series in dict.fromkeys((_series_of(None), _series_of(producer))):
            samples, versions, staleness = series
            wanted: list[tuple[Series | None, Any]] = [(samples, float(count))]
            if producer is not None and producer.version is not None:
                # (value, weight): that many contexts with the same version.
                wanted.append((versions, (float(producer.version), float(count))))
                if version is not None:
                    wanted.append((staleness, (float(version - producer.version), float(count))))
            for one, value in wanted:
                if one is not None:
                    records += (one, step, value, time_ns)
    append(records)


_MEASURES = (
    ("consumed/samples", Reduction(("sum",)), "{sample}", "Things that a step was made of."),
    ("consumed/version", Reduction(("mean", "min", "max")), "{version}", "The version that they were made with."),
    ("consumed/staleness", Reduction(("mean", "min", "max")), "{version}", "Versions that the consumer is ahead."),
)


def _series_of(producer: Producer | None) -> tuple[Series | None, ...]:
    """Return the series of a producer, those of all where it is not known, or there are too many of them."""
    who = None if producer is None or producer.rank is None else (producer.role or "producer", producer.rank)
    known = _SETTLING.series
    found = known.get(who)
    if found is None:
        # `known` has the series of all, too, which are those of no producer.
        if who is not None and len(known) > MAX_PRODUCERS:
            reporter.say(
                "too-many-producers",
                f"consumed(): more than {MAX_PRODUCERS} producers: further ones have no series of their own, and count "
                "in those of all.",
            )
            return _series_of(None)
        # Role → rank, as one attribute: it is published as `consumed/samples/generator/3`.
        attributes = identity({} if who is None else {who[0]: str(who[1])})
        found = known[who] = tuple(
            DEFINITIONS.series(name, attributes, reduction, unit=unit, description=said)
            for name, reduction, unit, said in _MEASURES
        )
    return found


def _look_up(metric: str) -> None:
    """Use what is known of a metric by now."""
    if any(metric == name for name, *_ in _MEASURES):
        _SETTLING.series = {}


DEFINITIONS.outdated.append(_look_up)


def _link(step: Step, span: Any, groups: _Groups) -> None:
    """Link the span, or one of this moment inside of it, to what was consumed: what there is most of first."""
    if not isinstance(span, Recording):
        trace_id, parent_id = span
        number = new_mark_id()
        # Where there is no trace the mark begins one, whose id has the mark's own in its lower half.
        made = mark("consumed", step, trace_id or STATE.trace_high | number, number, parent_id)
        if made is None:
            return
        span = made
    more = span.details
    for key, (count, example) in sorted(groups.items(), key=lambda item: -item[1].size):
        attributes = more.consumed.get(key)
        more.attributes[CONSUMED] = more.attributes.get(CONSUMED, 0) + count
        if attributes is not None:
            attributes[CONSUMED] += count
        elif key and len(more.links) < MAX_LINKS:
            attributes = more.consumed[key] = {CONSUMED: count, **_who(key)}
            trace_id, span_id = ids_of(example) or (0, 0)
            more.links.append((trace_id, span_id, attributes))


def _who(key: str) -> dict[str, object]:
    producer = producer_of(key) if len(key) == _KEY else None
    if producer is None:
        return {}
    said = {ROLE: producer.role, RANK: producer.rank, VERSION: producer.version}
    return {name: value for name, value in said.items() if value is not None}
