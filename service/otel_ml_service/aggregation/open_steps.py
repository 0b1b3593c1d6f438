"""Opens the windows of steps, and fills them."""

from __future__ import annotations

from otel_ml_service.aggregation.learned_reductions import learn
from otel_ml_service.aggregation.piece import Piece
from otel_ml_service.aggregation.run_state import RunState
from otel_ml_service.aggregation.step_streams import Attempt
from otel_ml_service.aggregation.step_window import StepWindow

__all__ = ["OpenSteps"]


class OpenSteps:
    """What points with a step, and those that wait for one, are put into until it closes."""

    def __init__(self, run: RunState) -> None:
        self._run = run

    def window(self, attempt: Attempt, step: int) -> StepWindow:
        """Return the open window of a step, known or new."""
        window = attempt.open.get(step)
        if window is None:
            window = self._run.new_window(attempt, step)
            attempt.insert(window)
        self._run.step_streams.dirty.add(attempt.number)
        return window

    def keep(self, attempt: Attempt, window: StepWindow, piece: Piece) -> None:
        """Add a piece to an open window."""
        learn(self._run, attempt, piece)
        window.add(piece)
        self._run.touch(attempt, window)
