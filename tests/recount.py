"""What an engine keeps count of, counted again from scratch: from the pieces it holds, not from what it remembers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from otel_ml_service.aggregation.engine import Engine
from otel_ml_service.aggregation.step_streams import Attempt, StepWindow

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
        "bytes of each lane": {
            attempt.number: (attempt.open_bytes, attempt.retained_bytes) for attempt in run.step_streams
        },
        "order": {attempt.number: attempt.order for attempt in run.step_streams},
        "members": {attempt.number: sorted(attempt.members) for attempt in run.step_streams},
        "users of shapes": {number: shape.users for number, shape in run.shapes.known.items() if shape.users},
        "undecided restarts": engine._steps.restart_detection._open,
        "waiting amendments": set(engine._steps.late._waiting),
    }


def recounted(engine: Engine) -> dict[str, object]:
    """Return the same, counted from scratch."""
    run = engine._run
    opened = [window for attempt in run.step_streams for window in attempt.open.values()]
    retained = [window for attempt in run.step_streams for window in attempt.retained.values()]
    closed = engine._steps.closed
    on_their_way = [*closed.leaving, *closed._left.values()]
    return {
        "open bytes": _bytes(opened),
        "open steps": len(opened),
        "open points": sum(len(piece.partials.series) for window in opened for piece in window.pieces),
        "retained bytes": _bytes(retained),
        "bytes of each lane": {attempt.number: _bytes_of(attempt) for attempt in run.step_streams},
        "order": {attempt.number: sorted(attempt.open) for attempt in run.step_streams},
        "members": {
            attempt.number: [w.number for w in run.writers if attempt.number in w.progress]
            for attempt in run.step_streams
        },
        "users of shapes": _users([*opened, *retained, *on_their_way]),
        "undecided restarts": {writer.number for writer in run.writers if writer.contested},
        "waiting amendments": {window.number for window in retained if window.late_since is not None},
    }


def unaccounted(engine: Engine) -> int:
    """Return how many points arrived of which it is not known what became of them."""
    counts = engine.status.counts
    settled = counts.closed + counts.duplicate + counts.superseded + counts.too_late + counts.ignored + counts.overflow
    return counts.received - settled - counts.open - counts.waiting


def _bytes(windows: Iterable[StepWindow]) -> int:
    return sum(
        sum(400 + piece.partials.nbytes for piece in window.pieces) + EXPORTED_BYTES * len(window.exported or ())
        for window in windows
    )


def _bytes_of(attempt: Attempt) -> tuple[int, int]:
    return _bytes(attempt.open.values()), _bytes(attempt.retained.values())


def _users(windows: Iterable[StepWindow]) -> Mapping[int, int]:
    return Counter(piece.shape.number for window in windows for piece in window.pieces)
