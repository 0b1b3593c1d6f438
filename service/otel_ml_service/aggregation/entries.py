"""State entries of writers, tracks, lanes and units: plain data out, plain data in."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

from otel_ml.wire.reduction import Reduction
from otel_ml_service.aggregation.exported_series import from_plain, to_plain
from otel_ml_service.aggregation.intervals import IntervalSet
from otel_ml_service.aggregation.lanes import Lane, Tally, Track
from otel_ml_service.aggregation.observation import Attributes, Goodbye, SeriesKey, Writer
from otel_ml_service.aggregation.progress import Progress
from otel_ml_service.aggregation.reductions import Declared
from otel_ml_service.aggregation.run_state import RunState
from otel_ml_service.aggregation.unit import Unit
from otel_ml_service.aggregation.writer_state import WriterState

__all__ = [
    "lane_entry",
    "pairs",
    "reductions_entry",
    "restore_lane",
    "restore_reductions",
    "restore_track",
    "restore_unit",
    "restore_writer",
    "track_entry",
    "unit_entry",
    "who_entry",
    "writer_entry",
]


def pairs(attributes: list[list[str]]) -> Attributes:
    """Return identity attributes from their JSON form."""
    return tuple((key, value) for key, value in attributes)


_WRITER_FIELDS = tuple(Writer.__dataclass_fields__)
_PLAIN_WRITER = (
    "attempt", "floor", "forgiven", "gap_since", "heard_at", "since", "replaced_at", "replaced_when",
    "newest_ns", "lag", "born_at", "alive_at", "contested", "first_step_seq", "before", "native", "points", "lanes",
    "boot_lag", "boot_alive", "boot_ns",
)  # fmt: skip

_who, _plain_writer, _progress = (
    attrgetter(*names) for names in (_WRITER_FIELDS, _PLAIN_WRITER, tuple(Progress.__slots__))
)


def who_entry(state: WriterState) -> list[object]:
    """Return what a writer's resource says, and with whom it pools."""
    return [state.source.pool, *_who(state.writer)]


def writer_entry(state: WriterState) -> list[object]:
    """Return where a writer stands: one is written for every writer heard since the last commit."""
    goodbye = state.goodbye
    return [
        state.received.pairs(),
        [[seq, sorted(keys)] for seq, keys in state.parts.items()],
        None if goodbye is None else [getattr(goodbye, name) for name in _GOODBYE_FIELDS],
        [[lane, *_progress(progress)] for lane, progress in state.progress.items()],
        state.newest,
        _plain_writer(state),
        state.ledger.state(),
    ]


_GOODBYE_FIELDS = tuple(name for name in Goodbye.__dataclass_fields__ if name != "writer")


def restore_writer(run: RunState, who: list[Any], entry: list[Any]) -> None:
    """Add the writer of its two entries."""
    received, parts, goodbye, every_progress, newest, plain, ledger = entry
    pool, *values = who
    fields = dict(zip(_WRITER_FIELDS, values, strict=True))
    fields["topology"] = tuple((name, coordinate, size) for name, coordinate, size in fields["topology"])
    fields["tags"] = tuple(fields["tags"])
    state = run.writers.add(Writer(**fields), pool)
    for name, value in zip(_PLAIN_WRITER, plain, strict=True):
        setattr(state, name, value)
    run.native |= state.native
    state.received = IntervalSet(received)
    for seq, keys in parts:
        state.parts[seq] = {SeriesKey(name, pairs(attributes), kind) for name, attributes, kind in keys}
    state.ledger.restore(ledger)
    if goodbye is not None:
        state.goodbye = Goodbye(state.writer, **dict(zip(_GOODBYE_FIELDS, goodbye, strict=True)))
    for lane, *values in every_progress:
        fields = dict(zip(Progress.__slots__, values, strict=True))
        fields["manifests"] = [(seq, step) for seq, step in fields["manifests"]]
        state.progress[lane] = Progress(**fields)
    run.writers.recall(state)
    if newest:
        run.writers.crown(state)


def track_entry(track: Track) -> list[object]:
    """Return a track without its lanes."""
    return [track.role, track.axis, track.tally.counts(), track.tally.published]


def restore_track(run: RunState, entry: list[Any]) -> None:
    """Add the track of an entry."""
    role, axis, counts, published = entry
    track = run.lanes.track(role, axis)
    track.tally = Tally(**counts, published=published)


def reductions_entry(run: RunState) -> list[object]:
    """Return what was said of the metrics of each role: all of it, when any of it has changed."""
    for known in run.lanes.reductions.values():
        known.changed = False
    return [
        [
            role,
            [[name, [[*_text(one), rank] for one, rank in sent.items()]] for name, sent in known.sent.items()],
            [[declared.pattern, *_text(declared.reduction), rank] for declared, rank in known.declared.items()],
            known.shown,
        ]
        for role, known in run.lanes.reductions.items()
    ]


def _text(reduction: Reduction) -> tuple[str, str]:
    return str(reduction), ",".join(reduction.unsaid)


def restore_reductions(run: RunState, entry: list[Any]) -> None:
    """Know again what was said."""
    for role, sent, declared, shown in entry:
        known = run.lanes.of_role(role)
        for name, every in sent:
            known.sent[name] = {Reduction.parse(text, defaults): rank for text, defaults, rank in every}
        for pattern, text, defaults, rank in declared:
            known.declared[Declared(pattern, Reduction.parse(text, defaults))] = rank
        known.shown = shown


_PLAIN_LANE = (
    "last_closed", "horizon", "unknown", "closes", "intervals", "closed_at", "begins", "fence", "members",
)  # fmt: skip


def lane_entry(lane: Lane) -> dict[str, object]:
    """Return a lane without its units."""
    plain = {name: getattr(lane, name) for name in _PLAIN_LANE}
    where = {"track": [lane.track.role, lane.track.axis], "known": lane.known.pairs(), "attempt": lane.ordinal}
    return {**where, **plain}


def restore_lane(run: RunState, entry: dict[str, Any]) -> None:
    """Add the lane of an entry."""
    lane = run.lanes.lane(run.lanes.track(*entry["track"]), entry["attempt"])
    for name in _PLAIN_LANE:
        setattr(lane, name, entry[name])
    lane.known = IntervalSet(entry["known"])
    run.lanes.dirty.add(lane.number)


_PLAIN_UNIT = ("step", "opened", "first_done", "due", "exported", "histograms", "late_since", "waiting", "named")


def unit_entry(lane: Lane, unit: Unit) -> dict[str, object]:
    """Return a unit without its points."""
    plain = {name: getattr(unit, name) for name in _PLAIN_UNIT}
    return {
        "lane": lane.number,
        "closed": unit.step in lane.retained and lane.retained[unit.step] is unit,
        "points": list(unit.points.items()),
        "manifests": [[number, *entry] for number, entry in unit.manifests.items()],
        "excused": sorted(unit.excused),
        "missing": sorted(unit.missing),
        "forgotten": to_plain(unit.forgotten),
        "chunks": unit.chunks,
        **plain,
    }


def restore_unit(run: RunState, number: int, entry: dict[str, Any]) -> Unit:
    """Add the unit of an entry to its lane."""
    lane = run.lanes.all[entry["lane"]]
    unit = Unit(number, entry["step"], entry["opened"])
    unit.points = dict(entry["points"])
    unit.manifests = {writer: (points, seq) for writer, points, seq in entry["manifests"]}
    unit.excused, unit.missing = set(entry["excused"]), set(entry["missing"])
    unit.forgotten, unit.chunks = from_plain(entry["forgotten"]), entry["chunks"]
    for name in _PLAIN_UNIT:
        setattr(unit, name, entry[name])
    if entry["closed"]:
        lane.retain(unit)
    else:
        lane.insert(unit)
    return unit
