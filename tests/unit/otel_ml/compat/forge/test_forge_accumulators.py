"""Accumulators, torchforge's own and one's own: states of all processes merge to what one process would have had."""

from __future__ import annotations

import asyncio
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from otel_ml.compat.forge import (
    LocalFetcherActor,
    LoggingMode,
    MetricAccumulator,
    MetricCollector,
    Reduce,
    get_or_create_metric_logger,
    record_metric,
    reduce_metrics_states,
)
from otel_ml.compat.forge.collector import COLLECTOR, publish_merged
from otel_ml.compat.forge.states import State
from otel_ml.testing import Capture
from otel_ml.warn_once import forget_warnings
from tests.unit.otel_ml.compat.forge.flushed import Mesh, Range, the_point


class Words(MetricAccumulator):
    """As torchforge's README has it: the state names `self.reduction_type.value`."""

    def __init__(self, reduction: Any) -> None:
        super().__init__(reduction)
        self.words = 0

    def reset(self) -> None:
        self.words = 0

    def append(self, value: str) -> None:
        self.words += len(value.split())

    def get_value(self) -> float:
        return float(self.words)

    def get_state(self) -> dict[str, Any]:
        return {"reduction_type": self.reduction_type.value, "words": self.words}

    @classmethod
    def get_reduced_value_from_states(cls, states: Sequence[Any]) -> float:
        return float(sum(state["words"] for state in states))


def test_an_accumulator_after_torchforges_template_is_recorded(captured: Capture) -> None:
    for text in ("a b c", "d e"):
        record_metric("words", text, Words)
    asyncio.run(MetricCollector().flush(0))

    assert captured.values("words") == [5.0]


def state_of(key: str, *values: float) -> dict[str, Any]:
    accumulator = Range()
    for value in values:
        accumulator.append(value)
    return {key: accumulator.get_state()}


@pytest.mark.feature("F3", "yes", "states of sum and count, not averages of averages")
def test_a_reduction_of_ones_own_merges_the_states_of_all_processes(captured: Capture) -> None:
    async def job() -> None:
        logger = await get_or_create_metric_logger(process_name="Controller")
        await logger.register_fetcher.call_one(Mesh(state_of("latency", 3.0, 9.0)), "TrainActor_1abc")
        await logger.register_fetcher.call_one(Mesh({"r0": state_of("latency", -1.0)}), "Generator_2abc")
        assert await logger.get_fetcher_count.call_one() == 2
        record_metric("latency", 5.0, Range)
        await logger.flush.call_one(4)
        await logger.deregister_fetcher.call_one("TrainActor_1abc")
        assert not await logger.has_fetcher.call_one("TrainActor_1abc")
        await logger.deregister_fetcher.call_one("Generator_2abc")

    COLLECTOR.begin([LoggingMode.GLOBAL_REDUCE], 0)
    asyncio.run(job())

    assert (the_point(captured, "latency").step, the_point(captured, "latency").value) == (4, 10.0)


@pytest.mark.feature("F14", "yes", "wrong use is reported once")
def test_processes_that_disagree_about_a_reduction_lose_nothing_of_a_flush(
    captured: Capture, caplog: pytest.LogCaptureFixture
) -> None:
    forget_warnings()
    states = disagreeing_states()

    for step in range(2):
        publish_merged(states, step)

    found = sorted((point.step, point.name, point.value) for point in captured.points)
    assert found == [
        (step, name, value) for step in range(2) for name, value in (("k/mean", 3.0), ("k/sum", 6.0), ("other", 3.0))
    ]
    assert caplog.text.count("several reductions") == 1


def test_merging_states_that_disagree_about_a_reduction_raises_the_error_of_torchforge() -> None:
    with pytest.raises(ValueError, match="Mismatched reduction types for key 'k': mean vs sum"):
        reduce_metrics_states(disagreeing_states())


def disagreeing_states() -> list[Mapping[str, State]]:
    mean, total = Reduce.MEAN.accumulator_class(), Reduce.SUM.accumulator_class()
    for accumulator in (mean, total):
        accumulator.append(2.0)
        accumulator.append(4.0)
    return [{"k": mean.get_state(), "other": mean.get_state()}, {"k": total.get_state()}]


@pytest.mark.parametrize(
    ("reduction", "empty", "state"),
    [
        (Reduce.MEAN, 0.0, {"reduction_type": "mean", "sum": 12.0, "count": 2}),
        (Reduce.SUM, 0.0, {"reduction_type": "sum", "total": 12.0}),
        (Reduce.MAX, -math.inf, {"reduction_type": "max", "max_val": 7.0}),
        (Reduce.MIN, math.inf, {"reduction_type": "min", "min_val": 5.0}),
        (Reduce.STD, 0.0, {"reduction_type": "std", "sum": 12.0, "sum_sq": 74.0, "count": 2}),
    ],
)
def test_an_accumulator_has_the_states_and_the_empty_value_of_torchforge_and_an_empty_one_records_nothing(
    reduction: Reduce, empty: float, state: dict[str, object]
) -> None:
    accumulator = reduction.accumulator_class(reduction)
    assert accumulator.get_value() == empty
    assert reduce_metrics_states([{"k": accumulator.get_state()}]) == []

    accumulator.append(5.0)
    accumulator.append(7.0)

    assert state.items() <= accumulator.get_state().items()
    accumulator.reset()
    assert accumulator.get_value() == empty


def test_a_flush_before_the_backends_is_said_and_returns_no_states(caplog: pytest.LogCaptureFixture) -> None:
    forget_warnings()

    assert asyncio.run(MetricCollector().flush(1, return_state=True)) == {}

    assert "Cannot flush collected metrics" in caplog.text


def test_a_fetcher_of_torchforge_brings_the_states_of_its_process(captured: Capture) -> None:
    async def flushed() -> None:
        fetcher = LocalFetcherActor(None, "TrainActor")
        await fetcher.init_backends.call_one({}, {"jsonl": {}}, global_step=3)
        record_metric("loss", 2.0)
        assert await fetcher.flush.call_one(global_step=3, return_state=True) == {}
        await fetcher.shutdown.call_one()

    asyncio.run(flushed())

    point = the_point(captured, "loss")
    assert (point.step, point.value) == (3, 2.0)


@pytest.mark.parametrize("reduction", [Reduce.MEAN, Reduce.SUM, Reduce.MAX, Reduce.MIN, Reduce.STD])
def test_merged_states_are_what_one_process_would_have_had(reduction: Reduce) -> None:
    values = [1e8 + offset for offset in (0.0, 1.0, 2.0, 3.0)]
    whole = reduction.accumulator_class()
    parts = [reduction.accumulator_class() for _ in range(2)]
    for place, value in enumerate(values):
        whole.append(value)
        parts[place % 2].append(value)

    [merged] = reduce_metrics_states([{"k": part.get_state()} for part in parts])

    assert merged.value == pytest.approx(whole.get_value(), rel=1e-15)
    if reduction is Reduce.STD:  # of large values with a small deviation: a sum of squares would have lost it
        assert merged.value == pytest.approx(statistics.pstdev(values), rel=1e-12)


OF_TORCHFORGE = {
    Reduce.MEAN: ([{"sum": 14, "count": 5}, {"sum": 16, "count": 10}], 2.0),
    Reduce.SUM: ([{"total": 5.0}, {"total": 7.0}], 12.0),
    Reduce.MAX: ([{"max_val": 5.0}, {"max_val": 7.0}], 7.0),
    Reduce.MIN: ([{"min_val": 5.0}, {"min_val": 7.0}], 5.0),
    Reduce.STD: ([{"sum": 3.0, "sum_sq": 5.0, "count": 2}, {"sum": 6.0, "sum_sq": 36.0, "count": 1}], 14 / 3),
}
"""States as its accumulators write them, and what they merge into; of the deviation the variance: of 1, 2 and 6."""


@pytest.mark.parametrize("reduction", OF_TORCHFORGE)
@pytest.mark.parametrize(
    "spelled", [lambda reduction: reduction, lambda reduction: reduction.value], ids=["enum", "text"]
)
def test_states_of_torchforges_own_accumulators_are_merged(reduction: Reduce, spelled: Callable[[Reduce], Any]) -> None:
    theirs, expected = OF_TORCHFORGE[reduction]
    states = [{"k": {"reduction_type": spelled(reduction), **state}} for state in theirs]

    [merged] = reduce_metrics_states(states)

    value = merged.value**2 if reduction is Reduce.STD else merged.value
    assert (merged.key, merged.reduction, value) == ("k", reduction, pytest.approx(expected))


@pytest.mark.parametrize("reduction", OF_TORCHFORGE)
def test_states_of_torchforge_and_ours_are_merged_together(reduction: Reduce) -> None:
    ours = reduction.accumulator_class()
    ours.append(3.0)
    same = {"sum": 3.0, "count": 1, "total": 3.0, "max_val": 3.0, "min_val": 3.0, "sum_sq": 9.0}
    theirs = {key: same[key] for key in OF_TORCHFORGE[reduction][0][0]}

    [merged] = reduce_metrics_states([{"k": ours.get_state()}, {"k": {"reduction_type": reduction, **theirs}}])

    expected = {Reduce.SUM: 6.0, Reduce.STD: 0.0}.get(reduction, 3.0)
    assert merged.value == expected


@pytest.mark.parametrize("reduction", [Reduce.SUM, Reduce.MEAN])
@pytest.mark.parametrize(
    ("values", "expected"), [((math.inf, -math.inf), math.nan), ((1e308, 1e308), math.inf), ((-math.inf,), -math.inf)]
)
def test_what_is_infinite_in_several_processes_is_recorded_and_not_refused(
    reduction: Reduce, values: Sequence[float], expected: float
) -> None:
    [merged] = reduce_metrics_states([taken(reduction, value) for value in values])

    assert merged.value == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize("reduction", OF_TORCHFORGE)
def test_an_array_of_one_element_is_its_number_and_a_value_that_is_none_leaves_the_others_as_they_are(
    reduction: Reduce,
) -> None:
    accumulator = reduction.accumulator_class(reduction)
    for value in (np.array([3.0]), np.array([[3.0]])):
        accumulator.append(value)
    with pytest.raises(ValueError, match="could not convert"):
        accumulator.append("three")

    assert accumulator.get_value() == {Reduce.SUM: 6.0, Reduce.STD: 0.0}.get(reduction, 3.0)
    assert accumulator.get_state().get("count") == 2


EMPTY = {Reduce.MEAN: 0.0, Reduce.SUM: 0.0, Reduce.MAX: -math.inf, Reduce.MIN: math.inf, Reduce.STD: 0.0}


@pytest.mark.parametrize("reduction", EMPTY)
def test_empty_states_have_the_number_of_torchforge_which_merges_them(reduction: Reduce) -> None:
    empty = reduction.accumulator_class(reduction).get_state()

    assert None not in empty.values()
    assert reduction.accumulator_class.get_reduced_value_from_states([empty]) == EMPTY[reduction]


def test_accumulators_have_the_attributes_that_subclasses_of_torchforges_read() -> None:
    attributes = {
        Reduce.MEAN: {"sum": 3.0, "count": 1},
        Reduce.SUM: {"total": 3.0},
        Reduce.MAX: {"max_val": 3.0},
        Reduce.MIN: {"min_val": 3.0},
        Reduce.STD: {"sum": 3.0, "sum_sq": 9.0, "count": 1},
    }
    for reduction, expected in attributes.items():
        accumulator = reduction.accumulator_class(reduction)
        assert accumulator.is_reset
        accumulator.append(3.0)

        assert {name: getattr(accumulator, name) for name in expected} == expected
        assert not accumulator.is_reset
        accumulator.reset()
        assert accumulator.is_reset


def taken(reduction: Reduce, value: float) -> dict[str, State]:
    accumulator = reduction.accumulator_class(reduction)
    accumulator.append(value)
    return {"k": accumulator.get_state()}


def test_an_empty_accumulator_is_absent_not_zero() -> None:
    assert reduce_metrics_states([{"k": reduce.accumulator_class().get_state()} for reduce in [Reduce.MEAN]]) == []


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1e200], 0.0),
        ([1e308, 1e308], 0.0),
        ([1e200, -1e200], math.inf),  # as torchforge has it: no float holds the squares
        ([math.inf], math.nan),
        ([1.0, math.inf], math.nan),
        ([math.inf, -math.inf], math.nan),
    ],
)
def test_a_deviation_of_large_values_is_one_and_that_of_infinite_ones_is_nan(
    values: list[float], expected: float
) -> None:
    accumulator = Reduce.STD.accumulator_class(Reduce.STD)
    for value in values:
        accumulator.append(value)

    merged = accumulator.get_reduced_value_from_states([accumulator.get_state(), accumulator.get_state()])
    assert [accumulator.get_value(), merged] == pytest.approx([expected, expected], nan_ok=True)
