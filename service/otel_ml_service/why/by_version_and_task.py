"""A metric by the policy version that its samples were made with, and by task."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence

from otel_ml_service.stored_runs.run_history import Series
from otel_ml_service.why.answer import Level
from otel_ml_service.why.facts import Place, RunFacts
from otel_ml_service.why.mean import mean
from otel_ml_service.why.producers import Producer

__all__ = ["by_task", "by_version", "levels"]

_TASK = "/environment/"


def by_version(producers: Sequence[Producer], steps: Collection[int] | None = None) -> Series:
    """Return version → the mean over the samples that were made with it.

    Args:
        producers: who made samples, with their values of the metric. Of a step whose samples of one producer were made
            with several versions, the mean one counts.
        steps: that consumed them; None for all.
    """
    # Version → samples, and the sum of sample × value.
    sums: dict[int, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for one in producers:
        for step, value in one.values.items():
            number = one.samples.get(step, 0.0)
            # A NaN, which is not itself, would make the mean of its version one.
            if step in one.version and number > 0 and value == value and (steps is None or step in steps):
                sums[round(one.version[step])][0] += number
                sums[round(one.version[step])][1] += number * value
    return {version: total / number for version, (number, total) in sorted(sums.items())}


def by_task(facts: RunFacts, place: Place, metric: str) -> Mapping[str, Series]:
    """Return task → step → the metric of its samples; tasks are what it was recorded with as `environment`."""
    begin = f"{metric}{_TASK}"
    return {
        key.name.removeprefix(begin): series
        for key, series in sorted(facts.history.series.items())
        if key.axis == place.axis and key.name.startswith(begin) and "/" not in key.name.removeprefix(begin)
    }


def levels(
    facts: RunFacts,
    place: Place,
    metric: str,
    producers: Sequence[Producer],
    before: Collection[int],
    after: Collection[int],
) -> tuple[Level, ...]:
    """Return what a metric was by task and by version in the steps before and after a change.

    Nothing of a single task or version: that is the metric itself.
    """
    tasks = by_task(facts, place, metric)
    of_tasks = [Level("task", task, _mean(series, before), _mean(series, after)) for task, series in tasks.items()]
    return (*_several(of_tasks), *_several(list(_of_versions(producers, before, after))))


def _of_versions(producers: Sequence[Producer], before: Collection[int], after: Collection[int]) -> Iterator[Level]:
    old, new = by_version(producers, before), by_version(producers, after)
    for version in sorted({*old, *new}):
        yield Level("version", str(version), old.get(version), new.get(version))


def _several(found: Sequence[Level]) -> Sequence[Level]:
    known = [one for one in found if one.before is not None or one.after is not None]
    return known if len(known) > 1 else []


def _mean(series: Series, steps: Collection[int]) -> float | None:
    values = [series[step] for step in steps if step in series and series[step] == series[step]]
    return mean(values) if values else None
