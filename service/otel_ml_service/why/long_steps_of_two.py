"""What one of two runs lost more than the other one in steps that are far longer than most."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from otel_ml.quantities import percent, seconds
from otel_ml_service.findings.wording import listed
from otel_ml_service.why.answer import CAUSED, Verdict
from otel_ml_service.why.facts import Place, RunFacts
from otel_ml_service.why.long_steps import LongSteps
from otel_ml_service.why.steps_answer import long_steps_of

__all__ = ["MoreLong", "more_in_long_steps"]

_NOTICED = 0.05
"""Of a typical step: less is as much."""


@dataclass(frozen=True, slots=True)
class MoreLong:
    """What the slower run lost more in long steps.

    Attributes:
        name: of the slower run, `A` or `B`; `other` is that of the other one.
        by_s: seconds a step, over all steps.
        less: the long steps of the other run; None where it has none.
    """

    name: str
    other: str
    by_s: float
    long: LongSteps
    less: LongSteps | None

    def steps_of(self, name: str) -> Collection[int]:
        """Return the long steps of one of the runs."""
        of_it = self.long if name == self.name else self.less
        return () if of_it is None else of_it.of_steps

    @property
    def told(self) -> str:
        """By how much it is slower, in which steps, and what the other run has of that."""
        other = f", in {self.other} {self.less.how_much}" if self.less is not None else ""
        slower = f"{self.name} is slower by {seconds(self.by_s)} a {self.long.axis}"
        return f"{slower}: {self.long.how_many('its steps')}{other}."

    @property
    def _explained(self) -> float:
        less = self.less.explained_s / self.less.steps if self.less is not None else 0.0
        return min((self.long.explained_s / self.long.steps - less) / self.by_s, 1.0)

    @property
    def verdict(self) -> Verdict:
        """Whether what was done in them is the cause of the difference."""
        return "caused" if self._explained >= CAUSED else "cannot tell"

    @property
    def cause(self) -> str:
        """What was done in them, or why nobody can tell."""
        if self.verdict == "caused":
            done = listed([one.phase for one in self.long.causes])
            return f"Caused in {self.name}: {done}; {percent(self._explained)} of it goes with that."
        if self.long.is_caused:
            return f"Cannot tell: long steps of {self.name} and of {self.other} are not long by the same."
        return self.long.cause


def more_in_long_steps(a: RunFacts, b: RunFacts, place: Place) -> MoreLong | None:
    """Return what one run lost more in long steps, its first ones apart; None where that is as much, or little."""
    of_a, of_b = _rarely_long(a, place), _rarely_long(b, place)
    # What both lose alike, as by a checkpoint every 100 steps, makes no difference between them.
    cost_a, cost_b = (0.0 if one is None else one.total_s / one.steps for one in (of_a, of_b))
    slow, less, names = (of_b, of_a, ("B", "A")) if cost_b > cost_a else (of_a, of_b, ("A", "B"))
    by_s = abs(cost_b - cost_a)
    if slow is None or by_s <= _NOTICED * slow.typical_s:
        return None
    return MoreLong(*names, by_s, slow, less)


def _rarely_long(run: RunFacts, place: Place) -> LongSteps | None:
    steps = run.times.get(place, {})
    long = long_steps_of(run, place, min(steps), max(steps)) if steps else None
    return long if long is not None and not long.is_warm_up else None
