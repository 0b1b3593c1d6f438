"""Steps of different roles and axes on one axis of time: which rollout was done beside which trainer step."""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate

from otel_ml.wire.attributes import DEFAULT_AXIS, TIME_AXIS
from otel_ml.wire.published_name import published_name
from otel_ml_service.report.contents import Contents
from otel_ml_service.report.markup import Markup, script_data, tag
from otel_ml_service.why.facts import Place

__all__ = ["beside", "times"]

_POINTS = 600
"""Steps of a role and axis whose time a page has; those between are where the line between these is."""


def beside(run: Contents, role: str, axis: str, step: int) -> str:
    """Return beside which trainer step one of another axis was done, `beside step 38`; empty where nothing tells."""
    if axis == DEFAULT_AXIS:
        return ""
    trainer = _trainer(run)
    at = run.recorded.get(Place(role, axis), {}).get(step)
    steps = sorted((time, one) for one, time in run.recorded.get(trainer, {}).items()) if trainer else []
    if at is None or not steps or not steps[0][0] <= at <= steps[-1][0]:
        return ""
    # A step is recorded when it is over: the one that was being done then is the next to be recorded.
    return f"beside {DEFAULT_AXIS} {steps[bisect_left(steps, (at, -1))][1]:,}"


def _trainer(run: Contents) -> Place | None:
    places = [place for place in run.recorded if place[1] == DEFAULT_AXIS]
    # The job's main role is the one whose names begin with nothing: `trainer`, or one with an empty prefix.
    return min(places, key=lambda place: (published_name(place[0], place[1], "x") != "x", place[0]), default=None)


def times(run: Contents) -> Markup:
    """Return when the steps of each role and axis were recorded, for the page; nothing where there is only one."""
    trainer = _trainer(run)
    order = sorted(run.recorded, key=lambda place: (place != trainer, place[1] == TIME_AXIS, place))
    if len({axis for _, axis in order} - {TIME_AXIS}) < 2:
        return Markup("")
    # One zero for all places, or they could not be put on one axis.
    begin = min(min(found.values()) for found in run.recorded.values())
    places = [
        {
            "role": role, "axis": axis, "prefix": published_name(role, axis, "x").removesuffix("x"),
            "points": _points(run.recorded[Place(role, axis)], begin),
        }
        for role, axis in order
    ]  # fmt: skip
    return tag("div", hidden="", data_times=script_data(places))


def _points(recorded: dict[int, float], begin: float) -> list[tuple[int, float]]:
    steps = sorted(recorded)
    # A step that was done again, or closed late, is drawn no earlier than the one before it.
    seconds = list(accumulate((recorded[step] - begin for step in steps), max))
    stride = -(-len(steps) // _POINTS)  # rounded up
    kept = sorted({*range(0, len(steps), stride), len(steps) - 1})
    return [(steps[place], round(seconds[place], 4)) for place in kept]
