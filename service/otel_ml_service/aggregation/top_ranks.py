"""The slowest and the fastest ranks of each timer as a table of the run, where somebody asked for it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from otel_ml.quantities import seconds
from otel_ml.wire.attributes import RESERVED_PREFIX
from otel_ml.wire.published_name import published_name
from otel_ml_exporters.records import Table
from otel_ml_service.aggregation.output import Output
from otel_ml_service.aggregation.step_streams import StepStream
from otel_ml_service.findings.extremes import COLUMNS, Extreme, Extremes
from otel_ml_service.findings.step_timers import StepTimers

__all__ = ["TopRanks"]

_EVERY = 100
"""Closed steps of a table: Megatron's `log_interval` by default."""

_SAID = 100
"""Lines on the console in the life of a service; the tables go on."""


@dataclass(slots=True)
class _Stretch:
    """Steps of one role and axis that are added up."""

    extremes: Extremes
    first: int = 0
    last: int = 0
    time_ns: int = 0
    steps: int = 0

    def add(self, step: int, time_ns: int, timers: StepTimers) -> None:
        """Take a step."""
        self.extremes.add(timers)
        self.last, self.time_ns, self.steps = step, time_ns, self.steps + 1


class TopRanks:
    """Owned by one engine. A stretch that a restart of the service cuts begins anew."""

    def __init__(self, output: Output, most: int) -> None:
        self._output = output
        self._most = most
        self._stretches: dict[tuple[str, str], _Stretch] = {}
        self._said = 0
        self._named: dict[tuple[str, str], tuple[str, int]] = {}

    @property
    def is_asked(self) -> bool:
        """Whether any ranks are to be listed."""
        return self._most > 0

    def add(self, stream: StepStream, step: int, time_ns: int, timers: StepTimers) -> None:
        """Take a step; publish the stretch where it is the hundredth."""
        if not self.is_asked or not timers.phases:
            return
        stretch = self._stretches.setdefault((stream.role, stream.axis), _Stretch(Extremes(self._most), first=step))
        stretch.add(step, time_ns, timers)
        if stretch.steps == _EVERY:
            self.publish(stream)

    def publish(self, stream: StepStream) -> None:
        """Emit the table of the steps since the last one, where there are any."""
        stretch = self._stretches.pop((stream.role, stream.axis), None)
        found = [] if stretch is None else stretch.extremes.take()
        if stretch is None or not found:
            return
        name = published_name(stream.role, stream.axis, f"{RESERVED_PREFIX}top_ranks")
        # Timer, which, place and rank, in the order of `COLUMNS`.
        rows = tuple((*one[:4], round(one.seconds, 9), one.steps) for one in found)
        place = {"time": stretch.time_ns / 1e9, "axis": stream.axis, "step": stretch.last}
        self._output.emit(Table, **place, name=name, columns=COLUMNS, rows=rows)
        self._say(stream, stretch, found)

    def _say(self, stream: StepStream, stretch: _Stretch, found: Sequence[Extreme]) -> None:
        """Name the ranks of the timer in which the slowest is furthest from the fastest, where that is news."""
        # The first of both lists are the maximum and the minimum of a timer.
        firsts = {(one.timer, one.which): one for one in found if one.place == 1}
        timers = dict.fromkeys(one.timer for one in found)
        spread = {timer: firsts[timer, "slowest"].seconds - firsts[timer, "fastest"].seconds for timer in timers}
        widest = max(spread, key=lambda timer: spread[timer])
        named = widest, firsts[widest, "slowest"].rank
        if self._named.get((stream.role, stream.axis)) == named or self._said >= _SAID:
            return
        self._named[stream.role, stream.axis] = named
        self._said += 1
        chosen = [one for one in found if one.timer == widest]
        self._output.say(
            "straggler",
            f"Ranks of role {stream.role!r} in {widest!r}, {stream.axis} {stretch.first} to {stretch.last}: slowest "
            f"{_listed(chosen, 'slowest')}; fastest {_listed(chosen, 'fastest')}.",
        )


def _listed(found: Iterable[Extreme], which: str) -> str:
    return ", ".join(f"{one.rank} ({seconds(one.seconds)})" for one in found if one.which == which)
