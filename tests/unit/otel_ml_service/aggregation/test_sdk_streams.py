"""docs/protocol.md §4.11: streams of the real OpenTelemetry SDK, exported several times within a step."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping

import pytest
from opentelemetry import metrics
from opentelemetry.metrics import Meter
from opentelemetry.sdk.metrics import Histogram
from opentelemetry.sdk.metrics.export import AggregationTemporality
from opentelemetry.sdk.metrics.view import (
    Aggregation,
    ExplicitBucketHistogramAggregation,
    ExponentialBucketHistogramAggregation,
)

from otel_ml_service.aggregation.observation import Observation
from otel_ml_service.aggregation.settings import EngineSettings
from tests.sdk import CUMULATIVE, DELTA, Sdk, at
from tests.strategies import START, Service, cumulative, writer


def _counter(meter: Meter) -> metrics.Counter:
    return meter.create_counter("tokens")


def _histogram(meter: Meter) -> metrics.Histogram:
    return meter.create_histogram("loss")


def _up_down_counter(meter: Meter) -> metrics.UpDownCounter:
    return meter.create_up_down_counter("queue")


def _gauge(meter: Meter) -> metrics._Gauge:
    return meter.create_gauge("rate")


def ended(service: Service) -> dict[int, dict[str, float]]:
    """Return the rows of the run, when nobody was heard any more."""
    service.wait(400)
    return service.rows()


SCOPES: Mapping[str, Callable[[Sdk], tuple[Meter, Meter]]] = {
    "name": lambda sdk: (sdk.meter("a"), sdk.meter("b")),
    "version": lambda sdk: (sdk.meter("a", "1"), sdk.meter("a", "2")),
    "attributes": lambda sdk: (sdk.meter("a"), sdk.meter("a", attributes={"of": "b"})),
}


@pytest.mark.parametrize("temporality", [CUMULATIVE, DELTA])
@pytest.mark.parametrize("apart", SCOPES)
def test_meters_of_one_process_that_use_one_name_are_streams_of_their_own(
    apart: str, temporality: AggregationTemporality
) -> None:
    service, sdk = Service(), Sdk(temporality=temporality)
    many, few = (meter.create_counter("tokens") for meter in SCOPES[apart](sdk))

    for _ in range(3):
        many.add(100, at(0, "sum"))
        few.add(1, at(0, "sum"))
        sdk.export(service)
        service.restart()

    assert ended(service) == {0: {"tokens": 303.0}}


@pytest.mark.parametrize("aggregation", [None, {Histogram: ExponentialBucketHistogramAggregation()}])
@pytest.mark.parametrize("where", [{"ml.step": 0}, {}])
@pytest.mark.parametrize("turns", ["010101", "000111", "110100", "1", "01"])
def test_what_two_readers_of_one_process_export_counts_once(
    turns: str, where: Mapping[str, int], aggregation: Mapping[type, Aggregation] | None
) -> None:
    service, sdk = Service(), Sdk(aggregation=aggregation, readers=2)
    meter = sdk.meter("a")
    tokens, losses, queue = _counter(meter), _histogram(meter), _up_down_counter(meter)

    for turn in turns:
        tokens.add(10, {"ml.reduction": "sum", **where})
        losses.record(2.0, {"ml.reduction": "sum,count", **where})
        queue.add(1, {"ml.reduction": "max", **where})
        sdk.export(service, int(turn))
        service.restart()
    service.wait(400)

    rows = service.rows(axis="step" if where else "time").values()
    total = {name: sum(row.get(name, 0.0) for row in rows) for name in ("tokens", "loss", "loss/count")}
    assert total == {"tokens": 10.0 * len(turns), "loss": 2.0 * len(turns), "loss/count": len(turns)}
    assert max(row["queue"] for row in rows) == len(turns)


def test_what_a_second_reader_sends_again_of_closed_steps_is_no_news() -> None:
    service, sdk = Service(EngineSettings(retained_steps=2)), Sdk(readers=2)
    meter = sdk.meter("a")
    instruments = [make(meter) for make in (_counter, _up_down_counter)]

    for step in range(8):
        for instrument in instruments:
            instrument.add(100, at(step, "sum"))
        for reader in (0, 1):
            sdk.export(service, reader)

    assert ended(service) == {step: {"tokens": 100.0, "queue": 100.0} for step in range(8)}
    counts = service.engine.status.counts
    assert (service.amendments, counts.amended, counts.too_late) == (0, 0, 0)


def test_points_of_two_meters_are_no_duplicates_where_messages_are_taken_without_decoding_them() -> None:
    service, sdk = Service(), Sdk(temporality=DELTA)
    counters = [sdk.meter(name).create_counter("tokens") for name in ("a", "b")]

    for step in range(5):  # from the third on
        for counter in counters:
            counter.add(1, at(step, "sum"))
        sdk.export(service)

    assert ended(service) == {step: {"tokens": 2.0} for step in range(5)}
    assert service.engine.status.counts.duplicate == 0


@pytest.mark.parametrize("retained_steps", [1024, 2])
def test_what_an_sdk_sends_again_of_closed_steps_is_no_news(retained_steps: int) -> None:
    service, ranks = Service(EngineSettings(retained_steps=retained_steps)), [Sdk(0), Sdk(1), Sdk(2)]
    meters = [rank.meter("a") for rank in ranks]
    tokens, losses = ([make(meter) for meter in meters] for make in (_counter, _histogram))
    queues, rates = ([make(meter) for meter in meters] for make in (_up_down_counter, _gauge))
    levels = [meter.create_up_down_counter("level") for meter in meters]

    for step in range(12):
        for rank, sdk in enumerate(ranks):
            tokens[rank].add(100, at(step, "sum"))
            losses[rank].record(0.1 * rank + step, at(step, "mean"))
            queues[rank].add(rank + step, at(step, "sum"))
            levels[rank].add(rank, at(step, "mean"))
            rates[rank].set(0.1 * step, at(step, "mean"))
            sdk.export(service)
    service.wait(400)

    counts = service.engine.status.counts
    assert (service.amendments, counts.amended, counts.too_late) == (0, 0, 0)
    assert [row["tokens"] for row in service.rows().values()] == [300.0] * 12
    assert [row["loss"] for row in service.rows().values()] == pytest.approx([0.1 + step for step in range(12)])
    assert [row["queue"] for row in service.rows().values()] == [3.0 + 3 * step for step in range(12)]
    assert [row["level"] for row in service.rows().values()] == [1.0] * 12
    assert [row["rate"] for row in service.rows().values()] == pytest.approx([0.1 * step for step in range(12)])


def test_what_an_sdk_adds_to_a_closed_step_is_late_and_counts_once() -> None:
    service, sdk = Service(), Sdk()
    tokens, rate = _counter(sdk.meter("a")), _gauge(sdk.meter("a"))

    for step in range(4):
        tokens.add(100, at(step, "sum"))
        rate.set(0.5, at(step, "max"))
        sdk.export(service)
    tokens.add(7, at(0, "sum"))
    rate.set(0.75, at(0, "max"))
    for _ in range(3):
        sdk.export(service)
        service.wait(20)

    assert ended(service)[0] == {"tokens": 107.0, "rate": 0.75}
    assert service.amendments == 1


def test_a_stream_that_an_sdk_keeps_sending_is_never_taken_for_a_new_one() -> None:
    service, sdk = Service(EngineSettings(identity_memory_s=40.0)), Sdk()
    tokens = _counter(sdk.meter("a"))

    for step in range(2):
        tokens.add(100, at(step, "sum"))
        sdk.export(service)
    for _ in range(150):
        sdk.export(service)
        service.restart()

    assert ended(service) == {0: {"tokens": 100.0}, 1: {"tokens": 100.0}}
    assert service.amendments == 0


class OneByOne(Service):
    """A service to which a Collector brings each export in many requests."""

    def take(self, *batches: Iterable[Observation]) -> None:
        for observation in itertools.chain(*batches):
            super().take([observation])


@pytest.mark.parametrize("goes_down", [False, True])
@pytest.mark.parametrize("silence_s", [350, 1200])
def test_what_an_sdk_sends_again_after_an_outage_is_no_news(silence_s: int, goes_down: bool) -> None:
    service, sdk = OneByOne(), Sdk()
    tokens, losses = _counter(sdk.meter("a")), _histogram(sdk.meter("a"))

    for step in range(8):
        tokens.add(100, at(step, "sum"))
        losses.record(2.0, at(step, "sum,count"))
        for _ in range(2):
            sdk.export(service)
        if step == 4:
            service.wait(silence_s)
            if goes_down:
                service.restart()
                service.wait(1)

    assert ended(service) == {step: {"tokens": 100.0, "loss": 2.0, "loss/count": 1.0} for step in range(8)}
    assert service.engine.status.counts.amended == 0


def test_streams_of_steps_that_an_sdk_sends_no_more_are_forgotten() -> None:
    service = Service(EngineSettings(identity_memory_s=100.0))
    source = writer(0)

    for step in range(20):
        for _ in range(30):
            service.wait(1)
            service.take([cumulative(source, "tokens", 1.0, start=START, time=service.now, step=step)])

    assert service.engine._third_party.streams.count < 10


@pytest.mark.parametrize("where", [{"ml.step": 0}, {}])
@pytest.mark.parametrize("first", ["one", "other"])
def test_a_level_is_that_of_all_meters_whatever_else_each_of_them_has(first: str, where: Mapping[str, int]) -> None:
    service, sdk = Service(), Sdk()
    alone = _up_down_counter(sdk.meter("one")) if first == "one" else None
    beside = sdk.meter("other").create_up_down_counter("active")
    queue = _up_down_counter(sdk.meter("other"))
    alone = alone or _up_down_counter(sdk.meter("one"))

    for _ in range(2):
        for instrument, change in ((alone, 1), (beside, 7), (queue, 5)):
            instrument.add(change, {"ml.reduction": "sum", **where})
        sdk.export(service)
    service.wait(400)

    rows = service.rows(axis="step" if where else "time").values()
    assert [(row["queue"], row["active"]) for row in rows] == [(12.0, 14.0)]


def test_that_an_sdk_has_no_room_for_more_steps_is_said_once() -> None:
    service, ranks = Service(), [Sdk(0), Sdk(1)]
    meters = [rank.meter("a") for rank in ranks]
    counters = [make(meter) for meter in meters for make in (_counter, _up_down_counter)]

    for step in range(2_010):  # opentelemetry-python keeps 2,000 sets of attributes
        for counter in counters:
            counter.add(100, at(step, "sum"))
    for rank in ranks * 2:
        rank.export(service)

    rows = ended(service)
    assert set(rows) == set(range(2_000))
    said = [notice for notice in service.notices if "otel.metric.overflow" in notice]
    assert len(said) == 1
    assert "'trainer' has more steps than it keeps (2,000" in said[0]
    assert "delta temporality" in said[0]


@pytest.mark.parametrize("aggregation", [None, {Histogram: ExponentialBucketHistogramAggregation()}])
def test_the_extremes_of_a_step_are_known_where_it_spans_several_exports(
    aggregation: Mapping[type, Aggregation] | None,
) -> None:
    service, sdk = Service(), Sdk(aggregation=aggregation)
    latency = sdk.meter("a").create_histogram("latency")

    for values in ((3.0, 900.0), (4.0, 5.0, 2.0), (6.0, 7.0)):
        for value in values:
            latency.record(value, at(0, "mean,min,max"))
        sdk.export(service)
    latency.record(1.0, at(1, "mean,min,max"))
    sdk.export(service)

    mean = (3 + 900 + 4 + 5 + 2 + 6 + 7) / 7
    assert ended(service) == {
        0: {"latency": pytest.approx(mean), "latency/min": 2.0, "latency/max": 900.0},
        1: {"latency": 1.0, "latency/min": 1.0, "latency/max": 1.0},
    }


def test_the_extremes_of_a_window_are_known_where_they_are_those_of_the_streams_life() -> None:
    service, sdk = Service(), Sdk()
    latency = sdk.meter("a").create_histogram("latency")

    windows = ((3.0, 900.0), (4.0, 5.0, 2.0), (6.0, 7.0))
    for values in windows:
        for value in values:
            latency.record(value, {"ml.reduction": "mean,min,max"})
        sdk.export(service)
        service.wait(9)
    service.wait(400)

    assert list(service.rows(axis="time").values()) == [
        {"latency": 451.5, "latency/min": 3.0, "latency/max": 900.0},
        {"latency": pytest.approx(11 / 3), "latency/min": 2.0},
        {"latency": 6.5},
    ]


@pytest.mark.parametrize("temporality", [DELTA, CUMULATIVE])
@pytest.mark.parametrize(
    ("reduction", "bounds", "missing"),
    [
        ("mean,std", [1.0], "the spread"),
        ("mean,geomean", [1.0], "the logarithms"),
        ("mean,p99", [], "the distribution"),
        ("mean,p99", [1.0], None),
        ("mean,min,max,count", [], None),
    ],
)
def test_what_a_program_asks_for_and_its_sdk_does_not_send_is_said_once(
    reduction: str, bounds: list[float], missing: str | None, temporality: AggregationTemporality
) -> None:
    sent_as = {Histogram: ExplicitBucketHistogramAggregation(bounds)}
    service, sdk = Service(), Sdk(temporality=temporality, aggregation=sent_as)
    latency = sdk.meter("a").create_histogram("latency")

    for step in range(3):
        for value in (0.5, 1.5):
            latency.record(value, at(step, reduction))
        sdk.export(service)

    asked = {"latency" if name == "mean" else f"latency/{name}" for name in reduction.split(",")}
    lacks = {name for name in asked if missing is not None and name != "latency"}
    assert [set(row) for row in ended(service).values()] == [asked - lacks] * 3
    said = [notice for notice in service.notices if "does not tell" in notice]
    assert len(said) == (missing is not None)
    assert all(f"does not tell {missing} of its records" in notice for notice in said)
