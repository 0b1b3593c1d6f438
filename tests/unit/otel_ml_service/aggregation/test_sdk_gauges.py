"""docs/protocol.md §4.11: gauges and levels of the real OpenTelemetry SDK, over processes, ranks and exports."""

from __future__ import annotations

import pytest
from opentelemetry import metrics
from opentelemetry.metrics import Meter
from opentelemetry.sdk.metrics.export import AggregationTemporality

from otel_ml_service.aggregation.cumulative_streams import MAX_METERS
from tests.sdk import CUMULATIVE, DELTA, Sdk, at
from tests.strategies import Rank, Service


def _gauge(meter: Meter) -> metrics._Gauge:
    return meter.create_gauge("rate")


def ended(service: Service) -> dict[int, dict[str, float]]:
    """Return the rows of the run, when nobody was heard any more."""
    service.wait(400)
    return service.rows()


@pytest.mark.parametrize("reduction", ["sum", "sum,max"])
def test_an_up_down_counter_is_a_level_also_where_its_sum_is_asked_for(reduction: str) -> None:
    service, ranks = Service(), [Sdk(0), Sdk(1)]
    queues = [rank.meter("a").create_up_down_counter("queue") for rank in ranks]

    for change in (5, -2, 1):
        for queue, rank in zip(queues, ranks, strict=True):
            queue.add(change, at(0, reduction))
            rank.export(service)

    assert ended(service)[0]["queue"] == 8.0
    assert service.amendments == 0


def test_a_level_that_is_exported_again_after_its_step_has_closed_changes_nothing() -> None:
    service, sdk = Service(), Sdk()
    queue = sdk.meter("a").create_up_down_counter("queue")

    for step in range(4):  # an SDK sends the points of all steps with each export
        queue.add(5 + step, at(step, "sum"))
        sdk.export(service)

    assert ended(service) == {step: {"queue": 5.0 + step} for step in range(4)}
    assert service.amendments == 0


@pytest.mark.parametrize("exports", [1, 3])
def test_the_sum_of_a_gauge_is_over_processes_not_over_exports(exports: int) -> None:
    service, ranks = Service(), [Sdk(0), Sdk(1)]
    free = [_gauge(rank.meter("a")) for rank in ranks]

    for export in range(exports):
        for rank, sdk in enumerate(ranks):
            free[rank].set(10.0 * rank + export - exports, at(0, "sum"))
            sdk.export(service)

    assert ended(service) == {0: {"rate": 8.0}}


@pytest.mark.parametrize("steps", [2, 40])
def test_gauges_of_two_meters_add_up_where_their_sum_is_asked_for(steps: int) -> None:
    service, sdk = Service(), Sdk()
    first, second = (_gauge(sdk.meter(name)) for name in ("a", "b"))

    for step in range(steps):
        for value in (5, 2):
            first.set(value, at(step, "sum,max"))
            second.set(value + 10, at(step, "sum,max"))
            sdk.export(service)

    assert ended(service) == {step: {"rate": 14.0, "rate/max": 14.0} for step in range(steps)}
    assert service.amendments == 0


def test_levels_of_two_meters_add_up() -> None:
    service, sdk = Service(), Sdk()
    first, second = (sdk.meter(name).create_up_down_counter("queue") for name in ("a", "b"))

    for step in range(2):
        for change in (5, -2):
            first.add(change, at(step, "sum"))
            second.add(change + 10, at(step, "sum"))
            sdk.export(service)
            service.restart()

    assert ended(service) == {0: {"queue": 26.0}, 1: {"queue": 26.0}}


def test_levels_of_more_meters_than_are_added_up_do_not_slow_the_others_down() -> None:
    service, sdk = Service(), Sdk()

    for number in range(MAX_METERS + 8):
        sdk.meter(f"meter-{number}").create_up_down_counter("queue").add(1, at(0, "sum"))
    sdk.export(service)

    assert ended(service) == {0: {"queue": MAX_METERS + 1.0}}


def test_levels_of_two_meters_without_a_step_add_up_as_long_as_both_are_sent() -> None:
    service, programs = Service(), [Sdk(), Sdk()]  # one process: the second stands for a meter that goes away
    for level, (name, sdk) in zip((3, 40), zip("ab", programs, strict=True), strict=True):
        sdk.meter(name).create_up_down_counter("queue").add(level)

    for _ in range(20):
        for sdk in programs:
            sdk.export(service)
    for _ in range(30):
        programs[0].export(service)
    service.wait(400)

    levels = [row["queue"] for row in service.rows(axis="time").values()]
    assert levels[:3] == [43.0, 43.0, 43.0]
    assert levels[-2:] == [3.0, 3.0]


@pytest.mark.parametrize("exports", [1, 9])
@pytest.mark.parametrize("temporality", [CUMULATIVE, DELTA])
def test_the_mean_of_gauges_is_over_ranks_not_over_exports(temporality: AggregationTemporality, exports: int) -> None:
    service, ranks = Service(), [Sdk(0, temporality=temporality), Sdk(1, temporality=temporality)]
    rates = [_gauge(rank.meter("a")) for rank in ranks]

    for _ in range(exports):
        rates[0].set(2.0, {"ml.step": 0})
        ranks[0].export(service)
    rates[1].set(5.0, {"ml.step": 0})
    ranks[1].export(service)

    assert ended(service) == {0: {"rate": 3.5}}


@pytest.mark.parametrize(
    ("said", "values"),
    [
        ("sum", {"rate": 7.0}),
        ("max,min", {"rate": 5.0, "rate/min": 2.0}),
        ("mean>sum", {"rate": 7.0}),
        ("rank", {"rate/rank_0": 2.0, "rate/rank_1": 5.0}),
        ("p50", {"rate": 2.0}),
    ],
)
@pytest.mark.parametrize("exports", [1, 3])
@pytest.mark.parametrize("who", [0, 1])
def test_one_process_may_say_how_a_gauge_is_reduced_for_all(
    who: int, exports: int, said: str, values: dict[str, float]
) -> None:
    service, ranks = Service(), [Sdk(0), Sdk(1)]
    rates = [_gauge(rank.meter("a")) for rank in ranks]

    for export in reversed(range(exports)):
        for rank, sdk in enumerate(ranks):
            rates[rank].set((2.0, 5.0)[rank] - export, at(0, said) if rank == who else {"ml.step": 0})
            sdk.export(service)

    assert ended(service) == {0: {name: pytest.approx(value, rel=0.006) for name, value in values.items()}}


@pytest.mark.parametrize("exports", [1, 5])
def test_what_is_observed_in_a_window_is_what_each_process_said_last(exports: int) -> None:
    service, ranks = Service(), [Sdk(0), Sdk(1)]
    for rank, sdk in enumerate(ranks):
        sdk.meter("a").create_observable_gauge("load", [lambda _, load=float(rank): [metrics.Observation(load)]])

    for _ in range(exports):
        ranks[0].export(service)
    ranks[1].export(service)

    assert set(map(tuple, (row.items() for row in _windows(service)))) == {(("load", 0.5),)}


def test_quantiles_of_gauges_are_those_of_what_each_rank_said_last() -> None:
    service, ranks = Service(), [Sdk(rank) for rank in range(5)]

    for rank, sdk in enumerate(ranks):
        rate = _gauge(sdk.meter("a"))
        for value in (100.0, float(rank)):
            rate.set(value, at(0, "p50,max"))
            sdk.export(service)

    assert ended(service) == {0: {"rate": 2.0, "rate/max": 4.0}}


def test_a_gauge_that_is_sent_again_of_closed_steps_is_no_news_to_a_service_that_was_started_again() -> None:
    service, sdk = Service(), Sdk()
    rate = _gauge(sdk.meter("a"))

    for step in range(6):
        rate.set(0.5 * step, at(step, "mean"))
        sdk.export(service)
        service.restart()

    assert ended(service) == {step: {"rate": 0.5 * step} for step in range(6)}
    assert service.engine.status.counts.ignored == 10  # all but the value itself, and once more while its step is open
    assert service.amendments == 0


@pytest.mark.parametrize("apart", ["ranks", "meters"])
def test_what_one_gauge_says_late_counts_though_another_one_has_said_the_same_before_the_service_was_started_again(
    apart: str,
) -> None:
    service, ranks = Service(), [Sdk(0, temporality=DELTA), Sdk(1, temporality=DELTA)]
    places = [(ranks[0], "a"), (ranks[1], "a") if apart == "ranks" else (ranks[0], "b")]
    gauges = [_gauge(sdk.meter(name)) for sdk, name in places]
    for step in range(4):
        for gauge, (sdk, _), value in zip(gauges, places, (2.0, 5.0), strict=True):
            gauge.set(value, at(step, "mean"))
            sdk.export(service)
    service.wait(20)
    assert service.rows()[0] == {"rate": 3.5}
    service.restart()

    gauges[0].set(5.0, at(0, "mean"))
    ranks[0].export(service)

    assert ended(service)[0] == {"rate": 5.0}


def _windows(service: Service) -> list[dict[str, float]]:
    service.wait(400)
    return list(service.rows(axis="time").values())


def test_a_step_of_another_sdk_is_open_as_long_as_its_points_come() -> None:
    """It never says that a step is over: it is when nothing has come for the allowed lateness."""
    service, rank, sdk = Service(), Rank(0), Sdk(1)
    rate = _gauge(sdk.meter("a"))
    service.wait(40, rank)

    for value in range(3):
        rate.set(value, at(0, "last"))
        sdk.export(service)
        service.wait(8, rank)
        assert service.rows() == {}
    service.wait(3, rank)

    assert service.rows() == {0: {"rate": 2.0}}
