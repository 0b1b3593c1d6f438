"""A process lives: in which steps it is, what it declares of metrics, how much it has sent (docs/protocol.md §4.7)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping

from otel_ml._internal.messages.encode_metrics import encoded_gauge
from otel_ml._internal.messages.sequence_number import Sequence
from otel_ml._internal.run_scope import Scope
from otel_ml._internal.series.definition import DEFINITIONS
from otel_ml.wire.attributes import BOOT_TIME, POSITION, REDUCTIONS, TIMERS
from otel_ml.wire.boot_clock import seconds_since_boot

__all__ = ["Heartbeat"]

_TOTALS_EVERY_NS = 5_000_000_000
"""How often a heartbeat says what was sent in all: what a kill leaves unsaid (ADR 0031)."""

Totals = Mapping[str, int]


class Heartbeat:
    """Of one run in one process: a gauge for each axis on which it is inside of a step, or one without a step."""

    def __init__(self, scope: Scope, sequence: Sequence) -> None:
        self._scope = scope
        self._sequence = sequence
        self._said_ns = self._totals_ns = self._declared = self._timers = 0

    def encoded(self, now_ns: int, interval_ns: int, totals: Callable[[], Totals], *, final: bool) -> Iterator[bytes]:
        """Yield what is due: each interval, at the end, and at once where something is declared."""
        declared = self._newly_declared()
        # Backwards, too: a clock that was set back an hour must not silence the heartbeat for one.
        if not final and not declared and abs(now_ns - self._said_ns) < interval_ns:
            return
        is_first, self._said_ns = not self._said_ns and not declared, now_ns
        said = {BOOT_TIME: seconds_since_boot(), **self._due(totals, now_ns, final=final), **declared}
        places = list(self._places())
        for axis, index in places:
            # The value of the gauge is the step, too.
            yield encoded_gauge(POSITION, axis, index, index, now_ns, self._sequence.next(), said)
        # In no step it lives, and waits: for a model to load, for another rank.
        if not places and not is_first and (declared or not final):
            yield encoded_gauge(POSITION, None, None, 0, now_ns, self._sequence.next(), said)

    def _places(self) -> Iterator[tuple[str, int]]:
        for axis in list(self._scope.steps.axes.values()):
            # The largest step that it is in: a process may be in several of an axis, by blocks of tasks or threads.
            step = axis.inside()
            if step is not None and step.index is not None:
                yield axis.name, step.index

    def _newly_declared(self) -> Mapping[str, str]:
        """Return what was said of metrics and timers since this was asked: it holds on ranks that do not say it."""
        news = DEFINITIONS.declared[self._declared :]
        self._declared += len(news)
        # Units and descriptions are left out: every point has its metric's.
        said = [(name, str(one), ",".join(one.unsaid)) for name, one, _, _ in news if any(one.explicit)]
        timers = list(DEFINITIONS.timers.items())[self._timers :]
        self._timers += len(timers)
        every = {REDUCTIONS: said, TIMERS: timers}
        return {key: json.dumps(rows) for key, rows in every.items() if rows}

    def _due(self, totals: Callable[[], Totals], now_ns: int, *, final: bool) -> Totals:
        """Return what was sent in all, where it is time to say so."""
        if not final and abs(now_ns - self._totals_ns) < _TOTALS_EVERY_NS:
            return {}
        self._totals_ns = now_ns
        return totals()
