"""What the resources of the writers say about a run: its name, tags and notes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import attrgetter

from otel_ml_service.aggregation.observation import Writer
from otel_ml_service.aggregation.outcome import RunFacts
from otel_ml_service.aggregation.writer_state import WriterState

__all__ = ["said_by"]

_ORDER = attrgetter("writer.role", "writer.rank", "number")


def said_by(writers: Iterable[WriterState]) -> RunFacts:
    """Return what the resources say about the run: the lowest (role, rank) that says it.

    What training says comes before what a Collector stamps on engines and nodes: whoever set that up need not know.
    Tags of a later launch of that rank are added to the earlier ones; its notes replace them.
    """
    states = sorted(writers, key=_ORDER)
    # Sorted by role and rank in both halves.
    ordered = [state.writer for native in (True, False) for state in states if state.native is native]
    return RunFacts(
        experiment_name=next((w.experiment_name for w in ordered if w.experiment_name), ""),
        run_name=next((w.run_name for w in ordered if w.run_name), ""),
        started_at=0.0,
        tags=tuple(dict.fromkeys(tag for writer in _launches(ordered, "tags") for tag in writer.tags)),
        notes=next((writer.notes for writer in reversed(_launches(ordered, "notes"))), None),
    )


def _launches(ordered: Sequence[Writer], name: str) -> Sequence[Writer]:
    """Return the writers of the lowest (role, rank) that says `name`, those that say it, the oldest first."""
    saying = [writer for writer in ordered if getattr(writer, name)]
    return [writer for writer in saying if (writer.role, writer.rank) == (saying[0].role, saying[0].rank)]
