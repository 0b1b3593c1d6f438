"""What other SDKs say of a step does not depend on when and how often they export it (ADR 0037)."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.sdk.metrics.export import AggregationTemporality

from tests.sdk import CUMULATIVE, DELTA, Sdk, at
from tests.strategies import Service

RANKS, METERS, STEPS = 3, 2, 3

values = st.integers(-8, 8).map(float)


class Set(NamedTuple):
    """A rank sets a gauge, or adds to a counter, of one of its meters."""

    rank: int
    meter: int
    step: int
    value: float


class Export(NamedTuple):
    """A rank's reader comes by."""

    rank: int


class Restart(NamedTuple):
    """The service starts again from what it had committed."""


Event = Set | Export | Restart
ranks = st.integers(0, RANKS - 1)
schedules = st.lists(
    st.one_of(
        st.builds(Set, ranks, st.integers(0, METERS - 1), st.integers(0, STEPS - 1), values),
        st.builds(Export, ranks),
        st.just(Restart()),
    ),
    max_size=40,
)
REDUCTIONS: Mapping[str, Callable[[Sequence[float]], float]] = {
    "mean": statistics.fmean,
    "sum": math.fsum,
    "min": min,
    "max": max,
    "count": len,
    "std": statistics.pstdev,
    "p50": statistics.median_low,
}


def published(events: Sequence[Event], kind: str, reduction: str, temporality: AggregationTemporality) -> object:
    """Return the rows of the run of programs that do this, each exporting once more at its end."""
    service, programs = Service(), [Sdk(rank, temporality=temporality) for rank in range(RANKS)]
    meters = [[program.meter(name) for name in "ab"] for program in programs]
    made = [[getattr(meter, f"create_{kind}")("x") for meter in of_rank] for of_rank in meters]
    for event in [*events, *map(Export, range(RANKS))]:
        match event:
            case Set(rank, meter, step, value):
                instrument = made[rank][meter]
                (instrument.set if kind == "gauge" else instrument.add)(value, at(step, reduction))
            case Export(rank):
                programs[rank].export(service)
            case Restart():
                service.restart()
    service.wait(400)
    return service.rows()


def settings_of(events: Sequence[Event]) -> list[Set]:
    return [event for event in events if isinstance(event, Set)]


def rows(found: Mapping[int, Sequence[float]], reduction: str) -> object:
    return {step: {"x": pytest.approx(REDUCTIONS[reduction](of))} for step, of in sorted(found.items())}


@pytest.mark.parametrize("temporality", [CUMULATIVE, DELTA])
@pytest.mark.parametrize("reduction", REDUCTIONS)
@given(events=schedules)
@settings(max_examples=20, deadline=None)
def test_a_gauge_is_what_each_meter_said_last_in_a_step(
    reduction: str, temporality: AggregationTemporality, events: list[Event]
) -> None:
    last: dict[int, dict[tuple[int, int], float]] = {}
    for rank, meter, step, value in settings_of(events):
        last.setdefault(step, {})[rank, meter] = value
    expected = {step: list(found.values()) for step, found in last.items()}

    assert published(events, "gauge", reduction, temporality) == rows(expected, reduction)


@pytest.mark.parametrize("temporality", [CUMULATIVE, DELTA])
@pytest.mark.parametrize("reduction", REDUCTIONS)
@given(events=schedules)
@settings(max_examples=10, deadline=None)
def test_a_counter_is_what_each_process_added_in_a_step(
    reduction: str, temporality: AggregationTemporality, events: list[Event]
) -> None:
    added = [event._replace(value=abs(event.value)) if isinstance(event, Set) else event for event in events]
    totals: dict[int, dict[int, float]] = {}
    for rank, _, step, value in settings_of(added):
        of_step = totals.setdefault(step, {})
        of_step[rank] = of_step.get(rank, 0.0) + value
    expected = {step: list(found.values()) for step, found in totals.items()}

    assert published(added, "counter", reduction, temporality) == rows(expected, reduction)


@pytest.mark.parametrize("reduction", sorted(set(REDUCTIONS) - {"sum"}))
@given(events=schedules)
@settings(max_examples=10, deadline=None)
def test_an_up_down_counter_stands_where_each_meter_left_it(reduction: str, events: list[Event]) -> None:
    levels: dict[int, dict[tuple[int, int], float]] = {}
    for rank, meter, step, value in settings_of(events):
        of_step = levels.setdefault(step, {})
        of_step[rank, meter] = of_step.get((rank, meter), 0.0) + value
    expected = {step: list(found.values()) for step, found in levels.items()}

    assert published(events, "up_down_counter", reduction, CUMULATIVE) == rows(expected, reduction)
