"""How much a run takes: processes, axes, series. What is beyond is left out, counted by reason, and reported once."""

from __future__ import annotations

from otel_ml_service.aggregation.observation import Attributes, Observation
from otel_ml_service.aggregation.piece import Shape
from otel_ml_service.aggregation.run_state import RunState
from otel_ml_service.aggregation.writer_state import WriterState

__all__ = ["Quota"]

MAX_SHAPES = 65_536
"""Shapes remembered as taken as a whole; a cache, beyond it the series are looked up again."""


class Quota:
    """Admits who and what comes first, up to the limits.

    Series are learned anew after a restart of the service: those that still come are first again.
    """

    def __init__(self, run: RunState) -> None:
        self._run = run
        self._series: set[tuple[str, str, Attributes]] = set()
        self._whole: set[tuple[str, int]] = set()

    def writer(self, observation: Observation) -> WriterState | None:
        """Return the state of who sent it; None for one process too many."""
        writers, limit = self._run.writers, self._run.settings.writers
        if len(writers) >= limit and not writers.knows(observation.writer):
            partials = getattr(observation, "partials", None)
            self._leave_out(
                "too many processes",
                0 if partials is None else len(partials.series),
                f"More than {limit:,} processes have sent to this run; what further ones send is left out and counted.",
            )
            return None
        return writers.of(observation.writer)

    def axis(self, role: str, axis: str, points: int) -> bool:
        """Whether there is room for what was sent on an axis."""
        streams, limit = self._run.step_streams.streams, self._run.settings.axes
        if (role, axis) in streams or len(streams) < limit:
            return True
        self._leave_out(
            "too many axes",
            points,
            f"More than {limit:,} axes are used; what comes on {axis!r} and further ones is left out and counted. "
            "Use an axis for what counts steps, and attributes or names for what does not.",
        )
        return False

    def rows(self, role: str, shape: Shape) -> list[int] | None:
        """Return the rows of a fragment that there is room for; None for all."""
        if (role, shape.number) in self._whole:
            return None
        taken = [row for row, key in enumerate(shape.series) if self.series(role, key.name, key.attributes)]
        if len(taken) < len(shape.series):
            return taken
        if len(self._whole) >= MAX_SHAPES:
            self._whole.clear()
        self._whole.add((role, shape.number))
        return None

    def series(self, role: str, name: str, attributes: Attributes) -> bool:
        """Whether there is room for a point of a series."""
        key, limit = (role, name, attributes), self._run.settings.series
        if key in self._series:
            return True
        if len(self._series) < limit:
            self._series.add(key)
            return True
        self._leave_out(
            "too many series",
            1,
            f"More than {limit:,} series are recorded (OTEL_ML_SERIES_MAX); {name!r} and further ones are left out and "
            "counted. Is a step or an id part of a name or an attribute?",
        )
        return False

    def _leave_out(self, reason: str, points: int, sentence: str) -> None:
        if self._run.leave_out(reason, points):
            self._run.output.say("run-too-large", sentence)
