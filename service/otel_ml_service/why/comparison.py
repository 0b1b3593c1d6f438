"""What differs between two runs, and what made the second one slower: by the same rules as within a run."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from otel_ml.flatten import leaves
from otel_ml.quantities import percent, seconds
from otel_ml_exporters.records import JsonValue
from otel_ml_service.findings.units import measured
from otel_ml_service.findings.wording import listed, number, signed
from otel_ml_service.stored_runs.run_history import SeriesName
from otel_ml_service.why.answer import CAUSED, Verdict
from otel_ml_service.why.coincidences import is_looked_at, is_of_time
from otel_ml_service.why.facts import Place, RunFacts, Slow
from otel_ml_service.why.finding_text import what_was_when
from otel_ml_service.why.interval import Interval, of_differences, of_means
from otel_ml_service.why.long_steps_of_two import more_in_long_steps
from otel_ml_service.why.not_finite import not_finite_in_one
from otel_ml_service.why.step_time import StepTime, step_time, without_pauses

__all__ = ["Changed", "Comparison", "Difference", "compared"]

_NOTICED = 0.02
"""Of the step time: less is the same speed."""

_LAST = 4
"""Metrics are compared over the last fourth of the common steps: what came before is how they got there."""

_AT_LEAST = 64
"""Steps of that at least, where there are so many."""

_LARGEST = 1e150
"""Values whose squares are doubles, too; NaN and infinities are not compared."""

_OWN = "otel_ml."


@dataclass(frozen=True, slots=True)
class Changed:
    """A parameter, a commit, a package that the runs do not share; None where one has none."""

    name: str
    a: str | None
    b: str | None


@dataclass(frozen=True, slots=True)
class Difference:
    """A figure of both runs.

    Attributes:
        a, b: means; None of a phase that a run does not have.
        by: of B less that of A; from `low` to `high` in 95 of 100 cases, None of too few steps.
        steps: how many of B, or how many both have.
        first, last: of common steps; None where the runs are not compared step by step.
    """

    name: str
    a: float | None
    b: float | None
    by: float
    low: float | None
    high: float | None
    steps: int
    first: int | None = None
    last: int | None = None

    @property
    def is_sure(self) -> bool:
        """Whether there is a difference at all."""
        return Interval(self.by, self.low, self.high).is_sure


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two runs.

    Attributes:
        verdict: of why one is slower.
        sentences: how much slower B is, why, what else is different.
        phases: what each exposes of a step where `adds_up`, else the slowest rank of each; `of_one_rank` where phases
            take turns, and each run's are of the rank that works longest.
    """

    a: str
    b: str
    verdict: Verdict
    sentences: tuple[str, str, str]
    params: tuple[Changed, ...]
    code: tuple[Changed, ...]
    packages: tuple[Changed, ...]
    step: Difference | None
    phases: tuple[Difference, ...]
    adds_up: bool
    of_one_rank: bool
    throughput: tuple[Difference, ...]
    metrics: tuple[Difference, ...]
    findings: tuple[str, ...]


def compared(a: RunFacts, b: RunFacts) -> Comparison:
    """Return what differs between two runs, which may go on."""
    # Steps of different roles, or counted on different axes, cannot be compared.
    place = _common_place(a, b)
    times = step_time(a, place), step_time(b, place)
    step, phases = _step(*times), _phases(*times)
    params = tuple(_changed(_params(a), _params(b)))
    code, packages = tuple(_changed(_code(a), _code(b))), tuple(_changed(_packages(a), _packages(b)))
    metrics = tuple(_metrics(a, b))
    is_slower = step is not None and step.by > 0
    lost = _lost_more(b, a, place) if is_slower else _lost_more(a, b, place)
    verdict, reason = _why(step, phases, [*params, *code, *packages])
    # What was found slow is an edge, and comes before parameters and code, which merely differ.
    if step is not None and _is_large(step) and lost >= CAUSED * abs(step.by):
        slow, name = (b, "B") if is_slower else (a, "A")
        verdict, reason = "caused", _caused(_of_place(slow, place), name, lost / abs(step.by))
    what = _same_run(step) if a.id == b.id else _slower(step, is_caused=verdict == "caused")
    more = more_in_long_steps(a, b, place)
    apart = None if more is None else _step(*times, more.steps_of("A"), more.steps_of("B"))
    # Where a few long steps make more of the difference than all others do, they are what is told.
    if more is not None and apart is not None and more.by_s > abs(apart.by):
        # It goes on behind a comma.
        usual = _slower(apart, is_caused=False).replace("Neither", "neither")
        what, verdict, reason = f"{more.told} Apart from these, {usual}", more.verdict, more.cause
    return Comparison(
        a.id, b.id, verdict,
        (
            what,
            reason,
            " ".join([*not_finite_in_one(a, b), _worse(metrics)]),
        ),
        params, code, packages, step, phases,
        adds_up=times[0].source == times[1].source == "account",
        of_one_rank=any(time.of_rank is not None for time in times),
        throughput=tuple(one for one in metrics if is_of_time(one.name)),
        metrics=tuple(one for one in metrics if not is_of_time(one.name)),
        findings=tuple(f"{name}: {_shown(slow)}" for name, run in (("A", a), ("B", b)) for slow in run.findings[:5]),
    )  # fmt: skip


def _common_place(a: RunFacts, b: RunFacts) -> Place:
    both = [place for place in a.places if place in b.times]
    # A place that one run alone has, or none has, still gives an answer: parameters and code are compared all the same.
    return (both or a.places or b.places or [Place("trainer", "step")])[0]


def _changed(a: Mapping[str, str], b: Mapping[str, str]) -> Iterator[Changed]:
    for name in sorted(a.keys() | b.keys()):
        if a.get(name) != b.get(name):
            yield Changed(name, a.get(name), b.get(name))


def _params(run: RunFacts) -> dict[str, str]:
    return {
        name: _text(value) for name, value in leaves(run.history.params) if not name.startswith(_OWN) and value != {}
    }


def _code(run: RunFacts) -> dict[str, str]:
    known = {name.removeprefix(_OWN): _text(value) for name, value in leaves(run.history.params)}
    shown = {name: value for name, value in known.items() if name.startswith("git.") or name in {"command", "python"}}
    # Of changes that are in no commit, the digest tells whether both runs had the same.
    patch = run.history.artifacts.get(("code", "git-diff.patch"))
    return shown if patch is None or patch.sha256 is None else {**shown, "uncommitted changes": patch.sha256[:12]}


def _packages(run: RunFacts) -> dict[str, str]:
    listed_in = run.history.artifacts.get(("code", "packages.txt"))
    if listed_in is None or listed_in.local is None:
        return {}
    try:
        lines = listed_in.local.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:  # the folder was moved, or cleaned up
        return {}
    # Lines are `name==version`; one that says no version has nothing to compare.
    return {name: version for name, _, version in (line.partition("==") for line in lines) if version}


def _text(value: JsonValue) -> str:
    return number(value) if isinstance(value, float) else str(value)


def _step(
    a: StepTime, b: StepTime, not_of_a: Collection[int] = (), not_of_b: Collection[int] = ()
) -> Difference | None:
    of_a, of_b = (
        without_pauses(time, [step for step in sorted(time.seconds) if step not in others])
        for time, others in ((a, not_of_a), (b, not_of_b))
    )
    if not of_a or not of_b:
        return None
    return _of_steps("step time", a.seconds, b.seconds, of_a, of_b)


def _of_steps(
    name: str, a: Mapping[int, float], b: Mapping[int, float], of_a: Sequence[int], of_b: Sequence[int]
) -> Difference:
    # A phase that a step does not have took no time in it.
    before, after = [a.get(step, 0.0) for step in of_a], [b.get(step, 0.0) for step in of_b]
    by, low, high = of_means(before, after)
    return Difference(name, _mean(before) if a else None, _mean(after) if b else None, by, low, high, len(after))


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _phases(a: StepTime, b: StepTime) -> tuple[Difference, ...]:
    of_a, of_b = (without_pauses(time, sorted(time.seconds)) for time in (a, b))
    if not of_a or not of_b:
        return ()
    names = dict.fromkeys([*a.phases, *b.phases])
    found = [_of_steps(name, a.phases.get(name, {}), b.phases.get(name, {}), of_a, of_b) for name in names]
    return tuple(sorted((one for one in found if one.a or one.b), key=lambda one: -abs(one.by)))


def _metrics(a: RunFacts, b: RunFacts) -> Iterator[Difference]:
    for place in a.places:
        for name, values in sorted(a.series(place)):
            other = b.history.series.get(SeriesName(place.axis, name), {})
            if is_looked_at(name) or is_of_time(name):
                steps = [
                    # No comparison with NaN holds, so a step that B lacks is left out as one that is not finite.
                    step
                    for step in sorted(values)
                    if abs(values[step]) + abs(other.get(step, math.nan)) < _LARGEST
                ]
                if steps:
                    yield _at_equal_steps(name, values, other, steps)


def _at_equal_steps(name: str, a: Mapping[int, float], b: Mapping[int, float], common: Sequence[int]) -> Difference:
    # Of fewer common steps than that, the slice begins before the first one, and is all of them.
    steps = common[-max(len(common) // _LAST, _AT_LEAST) :]
    by, low, high = of_differences([b[step] - a[step] for step in steps])
    of_a, of_b = _mean([a[step] for step in steps]), _mean([b[step] for step in steps])
    return Difference(name, of_a, of_b, by, low, high, len(steps), steps[0], steps[-1])


def _slower(step: Difference | None, *, is_caused: bool) -> str:
    if step is None or step.a is None or step.b is None:
        return "How fast the runs are cannot be compared: one of them has no steps."
    took = f"a step takes {seconds(step.b)} in B and {seconds(step.a)} in A"
    if step.low is None or step.high is None:
        return f"A{took[1:]}; there are too few steps to say whether that is by chance."
    between = f"{signed(seconds(step.by))}, 95 % between {seconds(step.low)} and {seconds(step.high)}"
    if not step.is_sure and not is_caused:
        return f"Neither is sure to be faster: {took} ({between})."
    if not _is_large(step):
        return f"B is as fast as A: {took} ({between})."
    return f"B is {'slower' if step.by > 0 else 'faster'}: {took} ({between})."


def _same_run(step: Difference | None) -> str:
    took = "" if step is None or step.a is None else f": a step takes {seconds(step.a)}"
    return f"A and B are the same run{took}."


def _is_large(step: Difference) -> bool:
    return step.a is not None and abs(step.by) > _NOTICED * step.a


def _caused(found: Iterable[Slow], name: str, part: float) -> str:
    return (
        f"Caused in {name}: {listed([_shown(one) for one in found])}; {percent(min(part, 1.0))} of it goes with that."
    )


def _why(step: Difference | None, phases: Sequence[Difference], changed: Sequence[Changed]) -> tuple[Verdict, str]:
    if step is None or not step.is_sure or not _is_large(step):
        return "cannot tell", "Cannot tell more: there is no difference in time that has to be explained."
    # `_phases` has sorted them: the first one differs most.
    part = _most_changed(phases[0]) if phases else "no timer says in which part"
    if changed:
        names, differ = listed([one.name for one in changed]), "differs" if len(changed) == 1 else "differ"
        return "coincided", f"Coincided: {names} {differ}; {part}, and nothing shows that one led to the other."
    return (
        "cannot tell",
        f"Cannot tell: {part}; parameters, code and packages are the same as far as they were recorded.",
    )


def _most_changed(phase: Difference) -> str:
    return f"{phase.name} takes {seconds(abs(phase.by))} {'more' if phase.by > 0 else 'less'}"


def _lost_more(slow: RunFacts, other: RunFacts, place: Place) -> float:
    """Return the seconds a step that one run lost to slow ranks, less those of the other."""
    # By all steps of each run, as they need not be equally long.
    per_step = [_lost(_of_place(run, place)) / max(len(run.times.get(place, {})), 1) for run in (slow, other)]
    return per_step[0] - per_step[1]


def _of_place(run: RunFacts, place: Place) -> list[Slow]:
    return [slow for slow in run.findings if slow.place == place.prefix and slow.kind in {"slow", "stage"}]


def _lost(found: Iterable[Slow]) -> float:
    """Return the seconds that a run lost to slow ranks and stages: of several in one phase, the costliest counts."""
    lost: dict[str, float] = {}
    for slow in found:
        # Ranks that are slow in the same phase are waited for at once.
        lost[slow.phase] = max(lost.get(slow.phase, 0.0), slow.cost_s)
    return sum(lost.values())


def _shown(slow: Slow) -> str:
    cost = f", {seconds(slow.cost_s)} in all" if slow.cost_s else ""
    return f"{what_was_when(slow)}{cost}"


def _worse(metrics: Sequence[Difference]) -> str:
    sure = [one for one in metrics if one.is_sure]
    if not metrics:
        return "The runs share no metric at any step."
    if not sure and len(metrics) == 1:
        return f"{metrics[0].name}, the only metric of both at equal steps, is not sure to differ."
    if not sure:
        none = (
            "Neither of 2 metrics at equal steps"
            if len(metrics) == 2
            else f"Of {len(metrics)} metrics at equal steps none"
        )
        return f"{none} is sure to differ."
    # A difference that is sure is not 0, so one of both means is not, either.
    largest = sorted(sure, key=lambda one: -abs(one.by) / max(abs(one.a or 0.0), abs(one.b or 0.0)))
    named = [f"{one.name} ({measured(one.name, one.a or 0.0)} → {measured(one.name, one.b or 0.0)})" for one in largest]
    which = "the only metric of both" if len(metrics) == 1 else f"{len(sure)} of {len(metrics)} metrics"
    return f"At equal steps {which} {'differs' if len(sure) == 1 else 'differ'}: {listed(named, 3)}."
