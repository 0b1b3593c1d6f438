"""What an engine keeps count of, counted again from scratch: from the pieces it holds, not from what it remembers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from otel_ml_service.aggregation.engine import Engine
from otel_ml_service.aggregation.lanes import Lane, Unit

EXPORTED_BYTES = 200
"""What the memory of one exported value is taken to cost."""


def kept_sums(engine: Engine) -> dict[str, object]:
    """Return the sums that an engine keeps and goes by."""
    run, status = engine._run, engine.status
    return {
        "open bytes": status.open_bytes,
        "open steps": status.open_steps,
        "open points": status.counts.open,
        "retained bytes": status.retained_bytes,
        "bytes of each lane": {lane.number: (lane.open_bytes, lane.retained_bytes) for lane in run.lanes},
        "order": {lane.number: lane.order for lane in run.lanes},
        "members": {lane.number: sorted(lane.members) for lane in run.lanes},
        "users of shapes": {number: shape.users for number, shape in run.shapes.known.items() if shape.users},
        "undecided restarts": engine._steps.contest._open,
        "waiting amendments": set(engine._steps.late._waiting),
    }


def recounted(engine: Engine) -> dict[str, object]:
    """Return the same, counted from scratch."""
    run = engine._run
    opened = [unit for lane in run.lanes for unit in lane.open.values()]
    retained = [unit for lane in run.lanes for unit in lane.retained.values()]
    closed = engine._steps.closed
    on_their_way = [*closed.leaving, *closed._left.values()]
    return {
        "open bytes": _bytes(opened),
        "open steps": len(opened),
        "open points": sum(len(piece.partials.series) for unit in opened for piece in unit.pieces),
        "retained bytes": _bytes(retained),
        "bytes of each lane": {lane.number: _bytes_of(lane) for lane in run.lanes},
        "order": {lane.number: sorted(lane.open) for lane in run.lanes},
        "members": {lane.number: [w.number for w in run.writers if lane.number in w.progress] for lane in run.lanes},
        "users of shapes": _users([*opened, *retained, *on_their_way]),
        "undecided restarts": {writer.number for writer in run.writers if writer.contested},
        "waiting amendments": {unit.number for unit in retained if unit.late_since is not None},
    }


def unaccounted(engine: Engine) -> int:
    """Return how many points arrived of which it is not known what became of them."""
    counts = engine.status.counts
    settled = counts.closed + counts.duplicate + counts.superseded + counts.too_late + counts.ignored + counts.overflow
    return counts.received - settled - counts.open - counts.waiting


def _bytes(units: Iterable[Unit]) -> int:
    return sum(
        sum(400 + piece.partials.nbytes for piece in unit.pieces) + EXPORTED_BYTES * len(unit.exported or ())
        for unit in units
    )


def _bytes_of(lane: Lane) -> tuple[int, int]:
    return _bytes(lane.open.values()), _bytes(lane.retained.values())


def _users(units: Iterable[Unit]) -> Mapping[int, int]:
    return Counter(piece.shape.number for unit in units for piece in unit.pieces)
