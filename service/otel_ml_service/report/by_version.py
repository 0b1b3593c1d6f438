"""A metric by the policy version that its samples were made with, and by task: a chart of each that has these."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from otel_ml_service.report.contents import Contents
from otel_ml_service.report.curves import Curve, chart
from otel_ml_service.report.markup import Markup, section, tag
from otel_ml_service.stored_runs.run_history import SeriesName
from otel_ml_service.why.by_version_and_task import by_task, by_version
from otel_ml_service.why.producers import producers_of

__all__ = ["by_version_and_task"]

_VERSION, _TASK = "consumed/version", "/environment/"
_AXIS = "policy_version"


def by_version_and_task(run: Contents) -> Markup:
    """Return the charts; nothing where no metric is recorded for each producer, or for several tasks."""
    found = [chart(title, axis, curves) for title, axis, curves in (*_by_version(run), *_by_task(run))]
    note = tag(
        "p", "By version: the mean of the samples that were made with it; of a step whose samples of one producer were "
        "made with several versions, the mean one.", class_="quiet",
    )  # fmt: skip
    has_versions = any(True for _ in _by_version(run))
    return section(
        "By policy version and by task",
        tag("div", *found, class_="charts") if found else "",
        note if has_versions else "",
    )


def _by_version(run: Contents) -> Iterator[tuple[str, str, list[Curve]]]:
    for axis, prefix, producers in _producers(run):
        metrics = dict.fromkeys(
            key.name.removesuffix(f"/{who}")
            for key in run.history.series
            for who in producers
            if key.axis == axis and key.name.endswith(f"/{who}") and not key.name.startswith(f"{prefix}consumed/")
        )
        for metric in metrics:
            # What is recorded by producer alone has no metric of its own to be compared with.
            if SeriesName(axis, metric) in run.history.series:
                place = run.facts.place_of(axis, metric)
                means = by_version(producers_of(run.facts, place, metric))
                yield f"{metric} by version", _AXIS, [Curve(metric, means)]


def _producers(run: Contents) -> Iterator[tuple[str, str, list[str]]]:
    """Yield who made what was consumed, `generator/3`, by axis and by what the consumer's names begin with."""
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for key in run.history.series:
        prefix, is_there, who = key.name.partition(f"{_VERSION}/")
        # `consumed/version/generator/3` is of one producer; a further reduction, such as `…/max`, has no rank at its
        # end.
        if is_there and who.rpartition("/")[2].isdecimal():
            found[key.axis, prefix].append(who)
    for (axis, prefix), producers in found.items():
        yield axis, prefix, producers


def _by_task(run: Contents) -> Iterator[tuple[str, str, list[Curve]]]:
    metrics = dict.fromkeys(
        (key.axis, metric)
        for key in run.history.series
        for metric, is_there, _ in [key.name.partition(_TASK)]
        if is_there
    )
    for axis, metric in metrics:
        tasks = by_task(run.facts, run.facts.place_of(axis, metric), metric)
        if len(tasks) > 1:
            yield f"{metric} by task", axis, [Curve(task, series) for task, series in tasks.items()]
