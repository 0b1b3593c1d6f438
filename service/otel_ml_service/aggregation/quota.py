"""How much a run takes: processes, axes, series. What is beyond is left out, reported once, and counted by reason.

It is counted in values, as what is recorded is (ADR 0031). Of other programs nobody knows what they have recorded: what
is left out of theirs has a reason of its own, and counts as recorded, too.
"""

from __future__ import annotations

from otel_ml_service.aggregation.fold import COUNT
from otel_ml_service.aggregation.observation import Attributes, Fragment, Observation, Sent, ThirdPartyPoints
from otel_ml_service.aggregation.piece import Shape, values_in
from otel_ml_service.aggregation.run_state import OF_OTHERS, TOO_MANY_PROCESSES, RunState
from otel_ml_service.aggregation.writer_state import WriterState

__all__ = ["Quota"]

_AXES, _SERIES = "too many axes", "too many series"

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
            sent = observation if isinstance(observation, (Fragment, ThirdPartyPoints)) else None
            self._leave_out(
                TOO_MANY_PROCESSES,
                sent,
                None,
                f"More than {limit:,} processes have sent to this run; what further ones send is left out and counted.",
            )
            return None
        return writers.of(observation.writer)

    def axis(self, role: str, axis: str, sent: Sent | None = None, rows: list[int] | None = None) -> bool:
        """Whether there is room on an axis for what was sent, of which only some rows are new; None for all."""
        streams, limit = self._run.step_streams.streams, self._run.settings.axes
        if (role, axis) in streams or len(streams) < limit:
            return True
        self._leave_out(
            _AXES,
            sent,
            rows,
            f"More than {limit:,} axes are used; what comes on {axis!r} and further ones is left out and counted. "
            "Use an axis for what counts steps, and attributes or names for what does not.",
        )
        return False

    def has_taken(self, role: str, shape: Shape) -> bool:
        """Whether there is room for all of `shape`, as there was before."""
        return (role, shape.number) in self._whole

    def rows(self, role: str, shape: Shape, sent: Sent) -> list[int] | None:
        """Return the rows that there is room for of what was sent, whose series are those of `shape`; None for all."""
        if self.has_taken(role, shape):
            return None
        beyond = [row for row, key in enumerate(shape.series) if not self._is_within(role, key.name, key.attributes)]
        if beyond:
            self._leave_out(
                _SERIES,
                sent,
                beyond,
                f"More than {self._run.settings.series:,} series are recorded (OTEL_ML_SERIES_MAX); "
                f"{shape.series[beyond[0]].name!r} and further ones are left out and counted. Is a step or an id part "
                "of a name or an attribute?",
            )
            return sorted(set(range(len(shape.series))).difference(beyond))
        # Only a shape of which all was taken is remembered: what is beyond the limit is counted whenever it comes.
        if len(self._whole) >= MAX_SHAPES:
            self._whole.clear()
        self._whole.add((role, shape.number))
        return None

    def _is_within(self, role: str, name: str, attributes: Attributes) -> bool:
        """Whether there is room for a point of a series."""
        key, limit = (role, name, attributes), self._run.settings.series
        if key in self._series:
            return True
        if len(self._series) < limit:
            self._series.add(key)
            return True
        return False

    def _leave_out(self, reason: str, sent: Sent | None, rows: list[int] | None, sentence: str) -> None:
        values = 0 if sent is None else _values_in(sent, rows)
        is_others = isinstance(sent, ThirdPartyPoints)
        if self._run.leave_out(f"{reason}{OF_OTHERS}" if is_others else reason, values):
            self._run.output.say("run-too-large", sentence)


def _values_in(sent: Sent, rows: list[int] | None) -> int:
    """Return how many values points stand for; of a running total that is one, for each says again what came before."""
    points = sent.partials if rows is None else sent.partials.some(rows)
    if isinstance(sent, Fragment):
        return values_in(points, sent.reduction)
    if sent.temporality == "delta" and sent.kind in {"histogram", "exponential"}:
        return int(points.stats[:, COUNT].sum())
    return len(points.series)
