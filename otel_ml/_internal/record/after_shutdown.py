"""What is recorded after the last run of the process has ended: it is in no run, which is reported once and counted."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from otel_ml._internal.run_scope import NOW
from otel_ml._internal.series import buffer
from otel_ml._internal.series.buffer import RECORDS, STRIDE, Records
from otel_ml._internal.series.row import Row
from otel_ml._internal.steps.axes import STEPS
from otel_ml.explanation import explained

__all__ = ["AFTER_SHUTDOWN", "AfterShutdown", "values_in"]

_SENTENCE = (
    "Something was recorded after the run had ended: it is not in any run. Call init() to begin a new one, or "
    "shutdown() after the last record."
)


class Refusing(Records):
    """The buffer of a process whose runs have ended."""

    __slots__ = ()

    def __iadd__(self, items: Iterable[Any], /) -> Refusing:  # type: ignore[misc] # a list that is not added to
        """Count the records."""
        AFTER_SHUTDOWN.refuse(values_in([*items]))
        return self


class AfterShutdown:
    """The time between the end of a run and the beginning of the next one.

    Attributes:
        is_now: it has begun.
        values: recorded in it, so far.
    """

    def __init__(self) -> None:
        self.is_now = False
        self.values = 0
        self._is_said = False
        self._say: Callable[[str], None] | None = None

    def enter(self, say: Callable[[str], None] | None) -> None:
        """A run has ended, and no other goes on; `say` prints."""
        self.is_now, self.values, self._say, self._is_said = True, 0, say, False
        # The list itself stays, for callers have loaded it: its class says what becomes of what they add.
        RECORDS.__class__ = Refusing
        NOW.off, NOW.level = False, -1  # calls get as far as the buffer; timers are above the level

    def leave(self) -> None:
        """Another run begins; steps that were set since are its own."""
        if not self.is_now:
            return
        self.is_now = False
        # Steps that `set_step()` has set since the end are kept for the next run, by number: the objects go with
        # `forget()`.
        wanted: dict[object, object] = {
            axis.name: step.index
            for axis in list(STEPS.axes.values())
            if axis.explicit and (step := axis.current) is not None
        }
        # Which forgets what is wanted, too. `Recorder.enabled` enters these steps once the next run records.
        STEPS.forget()
        STEPS.wanted = wanted
        buffer.stay_awake()
        NOW.off = True

    def forget(self) -> None:
        """In a forked child there is nothing that has ended."""
        self.is_now = False

    def refuse(self, values: int) -> None:
        """Count values that came too late; say so the first time."""
        if not values:
            return
        self.values += values
        is_first, self._is_said = not self._is_said, True
        if is_first and self._say is not None:
            self._say(explained(_SENTENCE, "after-shutdown"))

    def sum_up(self) -> None:
        """At the exit of the process: say how many values came too late, where it was more than one."""
        # Of a single one all is said: `refuse()` has said it when it came.
        if self.is_now and self.values > 1 and self._say is not None:
            said = f"{self.values:,} values in all were recorded after the run had ended."
            self._say(explained(said, "after-shutdown"))


def values_in(items: list[Any]) -> int:
    """Return how many values records hold."""
    at = values = 0
    while at < len(items):
        series = items[at]
        # The values of a row follow its four items; a list is one record with several values.
        more = len(series.series) if type(series) is Row else 0
        values += more or (len(items[at + 2]) if isinstance(items[at + 2], list) else 1)
        at += STRIDE + more
    return values


AFTER_SHUTDOWN = AfterShutdown()
