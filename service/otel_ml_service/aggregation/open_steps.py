"""Opens the units of steps, and fills them."""

from __future__ import annotations

from otel_ml_service.aggregation.lanes import Lane
from otel_ml_service.aggregation.learning import learn
from otel_ml_service.aggregation.piece import Piece
from otel_ml_service.aggregation.run_state import RunState
from otel_ml_service.aggregation.unit import Unit

__all__ = ["OpenSteps"]


class OpenSteps:
    """What points with a step, and those that wait for one, are put into until it closes."""

    def __init__(self, run: RunState) -> None:
        self._run = run

    def unit(self, lane: Lane, step: int) -> Unit:
        """Return the open unit of a step, known or new."""
        unit = lane.open.get(step)
        if unit is None:
            unit = self._run.new_unit(lane, step)
            lane.insert(unit)
        self._run.lanes.dirty.add(lane.number)
        return unit

    def keep(self, lane: Lane, unit: Unit, piece: Piece) -> None:
        """Add a piece to an open unit."""
        learn(self._run, lane, piece)
        unit.add(piece)
        self._run.touch(lane, unit)
