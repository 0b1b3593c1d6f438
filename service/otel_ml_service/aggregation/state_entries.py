"""State entries of writers, streams, attempts and windows: plain data out, plain data in."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

from otel_ml.wire.reduction import Reduction
from otel_ml_service.aggregation.exported_series import from_plain, to_plain
from otel_ml_service.aggregation.intervals import IntervalSet
from otel_ml_service.aggregation.observation import Attributes, SeriesKey, ShutdownMessage, Writer
from otel_ml_service.aggregation.reductions import Declared
from otel_ml_service.aggregation.run_state import RunState
from otel_ml_service.aggregation.step_streams import Attempt, StepStream, Tally
from otel_ml_service.aggregation.step_window import StepWindow
from otel_ml_service.aggregation.writer_progress import Progress
from otel_ml_service.aggregation.writer_state import WriterState

__all__ = [
    "WRITER_FIELDS",
    "attempt_entry",
    "pairs",
    "reductions_entry",
    "restore_attempt",
    "restore_reductions",
    "restore_stream",
    "restore_window",
    "restore_writer",
    "stream_entry",
    "who_entry",
    "window_entry",
    "writer_entry",
]


def pairs(attributes: list[list[str]]) -> Attributes:
    """Return identity attributes from their JSON form."""
    return tuple((key, value) for key, value in attributes)


_UNSTORED = "pid_namespace"
"""Who lives says it again, and of who died nobody asks: not in the state."""

WRITER_FIELDS = tuple(name for name in Writer.__dataclass_fields__ if name != _UNSTORED)
"""What is stored of what a writer says of itself, in this order."""

# In the order of the stored form (`older_state.py` counts on it): what is new is added at the end.
_PLAIN_WRITER = (
    "attempt", "floor", "forgiven", "gap_since", "heard_at", "since", "replaced_at", "replaced_when",
    "newest_ns", "lag", "born_at", "alive_at", "contested", "first_step_seq", "before", "native", "points", "attempts",
    "boot_lag", "boot_alive", "boot_ns", "dismissed",
)  # fmt: skip

_who, _plain_writer, _progress = (
    attrgetter(*names) for names in (WRITER_FIELDS, _PLAIN_WRITER, tuple(Progress.__slots__))
)


def who_entry(state: WriterState) -> list[object]:
    """Return what a writer's resource says, and with whom it pools."""
    return [state.source.pool, *_who(state.writer)]


def writer_entry(state: WriterState) -> list[object]:
    """Return where a writer stands: one is written for every writer heard since the last commit."""
    shutdown_message = state.shutdown_message
    return [
        state.received.pairs(),
        [[seq, sorted(keys)] for seq, keys in state.parts.items()],
        None if shutdown_message is None else [getattr(shutdown_message, name) for name in _SHUTDOWN_FIELDS],
        [[attempt, *_progress(progress)] for attempt, progress in state.progress.items()],
        state.newest,
        _plain_writer(state),
        state.ledger.state(),
    ]


_SHUTDOWN_FIELDS = tuple(name for name in ShutdownMessage.__dataclass_fields__ if name != "writer")


def restore_writer(run: RunState, who: list[Any], entry: list[Any]) -> None:
    """Add the writer of its two entries."""
    received, parts, shutdown_message, every_progress, newest, plain, ledger = entry
    pool, *values = who
    fields = dict(zip(WRITER_FIELDS, values, strict=True))
    fields["topology"] = tuple((name, coordinate, size) for name, coordinate, size in fields["topology"])
    fields["tags"] = tuple(fields["tags"])
    state = run.writers.add(Writer(**fields), pool)
    stands: dict[str, object] = dict(zip(_PLAIN_WRITER, plain, strict=True))
    stands["received"] = IntervalSet(received)
    stands["parts"] = {
        seq: {SeriesKey(name, pairs(attributes), kind) for name, attributes, kind in keys} for seq, keys in parts
    }
    if shutdown_message is not None:
        said = dict(zip(_SHUTDOWN_FIELDS, shutdown_message, strict=True))
        stands["shutdown_message"] = ShutdownMessage(state.writer, **said)
    stands["progress"] = {attempt: _restored_progress(values) for attempt, *values in every_progress}
    state.restore(stands)
    state.ledger.restore(ledger)
    # Behind `restore`, for what follows looks at what that has set.
    if state.native:
        run.know_as_ours(state)
    run.writers.recall(state)
    if newest:
        run.writers.crown(state)


def _restored_progress(values: list[Any]) -> Progress:
    fields = dict(zip(Progress.__slots__, values, strict=True))
    fields["watermarks"] = [(seq, step) for seq, step in fields["watermarks"]]
    return Progress(**fields)


def stream_entry(stream: StepStream) -> list[object]:
    """Return a stream without its attempts."""
    return [stream.role, stream.axis, stream.tally.counts(), stream.tally.published]


def restore_stream(run: RunState, entry: list[Any]) -> None:
    """Add the stream of an entry."""
    role, axis, counts, published = entry
    run.step_streams.stream(role, axis).restore(Tally(**counts, published=published))


def reductions_entry(run: RunState) -> list[object]:
    """Return what was said of the metrics of each role: all of it, when any of it has changed."""
    for known in run.step_streams.reductions.values():
        known.note_committed()
    return [
        [
            role,
            [[name, [[*_text(one), rank] for one, rank in sent.items()]] for name, sent in known.sent.items()],
            [[declared.pattern, *_text(declared.reduction), rank] for declared, rank in known.declared.items()],
            known.shown,
        ]
        for role, known in run.step_streams.reductions.items()
    ]


def _text(reduction: Reduction) -> tuple[str, str]:
    return str(reduction), ",".join(reduction.unsaid)


def restore_reductions(run: RunState, entry: list[Any]) -> None:
    """Know again what was said."""
    for role, sent, declared, shown in entry:
        run.step_streams.of_role(role).restore(
            {name: {Reduction.parse(text, unsaid): rank for text, unsaid, rank in every} for name, every in sent},
            {Declared(pattern, Reduction.parse(text, unsaid)): rank for pattern, text, unsaid, rank in declared},
            shown,
        )


_PLAIN_ATTEMPT = (
    "last_closed", "horizon", "unknown", "closes", "intervals", "closed_at", "begins", "fence", "members",
)  # fmt: skip


def attempt_entry(attempt: Attempt) -> dict[str, object]:
    """Return an attempt without its windows."""
    plain = {name: getattr(attempt, name) for name in _PLAIN_ATTEMPT}
    where = {
        "track": [attempt.stream.role, attempt.stream.axis],
        "known": attempt.known.pairs(),
        "attempt": attempt.ordinal,
    }
    return {**where, **plain}


def restore_attempt(run: RunState, entry: dict[str, Any]) -> None:
    """Add the attempt of an entry."""
    attempt = run.step_streams.attempt(run.step_streams.stream(*entry["track"]), entry["attempt"])
    attempt.restore({name: entry[name] for name in _PLAIN_ATTEMPT} | {"known": IntervalSet(entry["known"])})
    run.step_streams.dirty.add(attempt.number)


_PLAIN_WINDOW = ("step", "opened", "first_done", "due", "exported", "histograms", "late_since", "waiting", "named")


def window_entry(attempt: Attempt, window: StepWindow) -> dict[str, object]:
    """Return a window without its points."""
    plain = {name: getattr(window, name) for name in _PLAIN_WINDOW}
    return {  # keys of the stored form (ADR 0030): a lane is an attempt's, a manifest a watermark
        "lane": attempt.number,
        "closed": window.step in attempt.retained and attempt.retained[window.step] is window,
        "points": list(window.points.items()),
        "manifests": [[number, *entry] for number, entry in window.watermarks.items()],
        "excused": sorted(window.excused),
        "missing": sorted(window.missing),
        "forgotten": to_plain(window.forgotten),
        "chunks": window.chunks,
        **plain,
    }


def restore_window(run: RunState, number: int, entry: dict[str, Any]) -> StepWindow:
    """Add the window of an entry to its attempt."""
    attempt = run.step_streams.all[entry["lane"]]
    window = StepWindow(number, entry["step"], entry["opened"])
    window.restore(
        {name: entry[name] for name in _PLAIN_WINDOW}
        | {
            "points": dict(entry["points"]),
            "watermarks": {writer: (points, seq) for writer, points, seq in entry["manifests"]},
            "excused": set(entry["excused"]),
            "missing": set(entry["missing"]),
            "forgotten": from_plain(entry["forgotten"]),
            "chunks": entry["chunks"],
        }
    )
    if entry["closed"]:
        attempt.retain(window)
    else:
        attempt.insert(window)
    return window
