"""What passes between one step and the next, outside of all timers: a checkpoint, an evaluation, a loader's reset."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from otel_ml.quantities import percent, seconds
from otel_ml_exporters.records import Span
from otel_ml_service.findings.wording import listed
from otel_ml_service.why.answer import Evidence
from otel_ml_service.why.counted_twice import passed_s
from otel_ml_service.why.facts import Place, RunFacts
from otel_ml_service.why.how_often import regularly
from otel_ml_service.why.step_time import WORTH_TIMING_S, StepTime

__all__ = ["Between", "between_steps", "one_rank_between"]

_NOTICED = 0.05
"""Of the time that steps take with what is between them: less is not told."""

_NEARLY_ALL = 0.8
"""Of what a step is longer, that one rank was outside of its timers before it."""

_FEW = 0.2
"""Of the steps: more of them are told as what is usual."""

_LONGER = 0.25
"""Of the usual step, that one is longer whose spans are looked at."""

_LOOKED_AT = 3

_AHEAD = 16
"""Steps that a rank may be ahead of the last one."""

_NS = 1e9


@dataclass(frozen=True, slots=True)
class Between:
    """Time between steps.

    Attributes:
        axis: of the steps.
        total_s: all of it, and `share` of the time from the first step to the last one.
        of_steps: step → seconds that passed between the one before and it.
    """

    axis: str
    total_s: float
    share: float
    of_steps: Mapping[int, float]

    @property
    def passed(self) -> str:
        """How much it is, and between which steps."""
        much = f"{seconds(self.total_s)} ({percent(self.share)} of the time)"
        return f"{much} passed between {self.axis}s, in no timer: {self._where}"

    @property
    def longest(self) -> int:
        """The step before which most passed."""
        return max(self.of_steps, key=self.of_steps.__getitem__)

    @property
    def _where(self) -> str:
        usual, longest = median(self.of_steps.values()), self._longest()
        if len(longest) > _FEW * len(self.of_steps) and len(self.of_steps) > 1:
            return f"{seconds(usual)} each time"
        each = "" if len(longest) == 1 else " each"
        where = listed([f"{step - 1:,} and {step:,}" for step in longest], 3)
        mean = sum(self.of_steps[step] for step in longest) / len(longest)
        return f"{seconds(mean)}{each} between {self.axis}s {where}{regularly(longest, self.axis)}"

    def _longest(self) -> list[int]:
        """Return the steps before which at least half as much passed as before the longest one."""
        most = max(self.of_steps.values())
        return [step for step, of_it in self.of_steps.items() if of_it >= most / 2]


def between_steps(facts: RunFacts, place: Place, time: StepTime, steps: Iterable[int]) -> Between | None:
    """Return what passed between steps that follow each other; None where that is little, or nobody timed them.

    What lies before the first step of an attempt is the restart.
    """
    # By the clock a step lasts from the end of the one before it, so nothing is left between them.
    if time.source not in {"account", "timer"}:
        return None
    times, wanted = facts.times.get(place, {}), set(steps)
    restarts = {step for step, _ in facts.restarts.get(place, ())}
    known = sorted(times.keys() & time.seconds.keys())
    # Neighbors only: between steps 4 and 9 lie steps that did not close, or whose numbers the loop leaves out.
    pairs = [(a, b) for a, b in pairwise(known) if b == a + 1 and a in wanted and b in wanted and b not in restarts]
    if not pairs:
        return None
    # A row has the time of its newest record, which is about when its step ended.
    # Less than nothing where the slowest rank was still in the step before: it is in both.
    of_steps = {b: max(times[b] - times[a] - time.seconds[b], 0.0) for a, b in pairs}
    total_s = sum(of_steps.values())
    whole_s = total_s + passed_s({b: time.seconds[b] for _, b in pairs}, times)
    if not total_s > max(_NOTICED * whole_s, WORTH_TIMING_S * len(of_steps)):
        return None
    return Between(place.axis, total_s, total_s / whole_s, of_steps)


def one_rank_between(facts: RunFacts, place: Place, time: StepTime, steps: Sequence[int]) -> list[Evidence]:
    """Return which rank came late from between two steps, or joined: of the longest steps, as far as spans show it.

    Each rank's own clock counts, so hosts need not agree. It is not a fault: what it did there is in no timer.
    """
    usual = time.usual_s(list(time.seconds))
    longer = {step: time.seconds[step] - usual for step in steps if time.seconds[step] > (1 + _LONGER) * usual}
    looked_at = sorted(sorted(longer, key=lambda step: -longer[step])[:_LOOKED_AT])
    return [one for step in looked_at for one in _late(facts, place, step, longer[step])]


def _late(facts: RunFacts, place: Place, step: int, longer_s: float) -> Iterator[Evidence]:
    before, now = (_ends_of(facts, place, one) for one in (step - 1, step))
    both = before.keys() & now.keys()
    # Where most ranks have no spans of the step before, these are missing, and nobody joined.
    if len(both) < len(now) and 2 * len(both) > len(now):
        who = listed([f"rank {rank}" for rank in sorted(now.keys() - both)])
        yield Evidence("state", step, f"{who} joined at {place.axis} {step:,}: the others had begun without it")
        return
    passed = {rank: (now[rank][0] - before[rank][1]) / _NS for rank in both}
    if len(passed) < 2:
        return
    rank = max(passed, key=lambda one: passed[one])
    others = median(of_it for one, of_it in passed.items() if one != rank)
    if passed[rank] - others >= _NEARLY_ALL * longer_s:
        yield Evidence(
            "state",
            step,
            f"rank {rank} was in no timer for {seconds(passed[rank])} between {place.axis}s {step - 1:,} and {step:,} "
            # A timer that another thread ends late reaches into the next step: then less than nothing passed.
            f"(the others {seconds(max(others, 0.0))})",
        )


def _ends_of(facts: RunFacts, place: Place, step: int) -> Mapping[int, tuple[int, int]]:
    """Return rank → when its spans of a step begin and end."""
    spans: dict[int, list[Span]] = defaultdict(list)
    # The bytes are what the exporter `jsonl` writes: lines without them are not even parsed.
    for span in facts.spans_of_steps(place, step - _AHEAD, step, f'"step":{step},'.encode()):
        if span.step == step and (span.role, span.axis) == place:
            spans[span.rank].append(span)
    return {rank: (min(one.start_ns for one in of), max(one.end_ns for one in of)) for rank, of in spans.items()}
