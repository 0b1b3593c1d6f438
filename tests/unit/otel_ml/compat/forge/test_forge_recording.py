"""torchforge's calls, unmodified but for the import: what is recorded, under which name, at which step."""

from __future__ import annotations

import asyncio
import logging
import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import otel_ml
from otel_ml.compat.forge import (
    LocalFetcherActor,
    LoggingMode,
    Metric,
    MetricAccumulator,
    MetricCollector,
    Reduce,
    Sample,
    get_or_create_metric_logger,
    record_episode_sample,
    record_metric,
    reduce_metrics_states,
)
from otel_ml.compat.forge.collector import COLLECTOR, publish_merged
from otel_ml.compat.forge.states import State
from otel_ml.exceptions import ConfigError
from otel_ml.once import forget_said
from otel_ml.testing import Capture, Point, capture

VALUES = [1.0, 2.0, 4.0]


@pytest.fixture
def captured(monkeypatch: pytest.MonkeyPatch) -> Iterator[Capture]:
    for name in ("FORGE_DISABLE_METRICS", "FORGE_LOGGING_MODES"):
        monkeypatch.delenv(name, raising=False)
    COLLECTOR.forget()
    forget_said()
    with capture(rank=1, world_size=2) as run:
        yield run
    COLLECTOR.forget()


def the_point(captured: Capture, name: str) -> Point:
    [point] = [point for point in captured.points if point.name == name]
    return point


@pytest.mark.feature("F1", "yes", "no handle, no coordination, no step")
@pytest.mark.feature("F2", "yes", "mean, sum, max, min, std")
@pytest.mark.parametrize("reduction", [Reduce.MEAN, Reduce.SUM, Reduce.MAX, Reduce.MIN, Reduce.STD])
def test_a_value_is_recorded_from_anywhere_with_its_reduction(captured: Capture, reduction: Reduce) -> None:
    otel_ml.set_step(3)

    for value in VALUES:
        record_metric("grpo/loss", value, reduction)

    point = the_point(captured, "grpo/loss")
    assert (point.step, point.reduction, point.count, point.value) == (3, reduction.value, 3, 7.0)


def test_a_value_without_a_step_travels_without_one_and_the_next_row_takes_it(captured: Capture) -> None:
    record_metric("buffer/size", 5)

    assert the_point(captured, "buffer/size").step is None


def test_ranks_that_hold_copies_can_count_once(captured: Capture) -> None:
    record_metric("tokens", 512, Reduce.SUM, over="dp")

    assert the_point(captured, "tokens").reduction == "sum@dp"


@pytest.mark.feature("F13", "better", "true, 1 and yes mean the same for every call")
@pytest.mark.parametrize("yes", ["true", "1", "yes", "True"])
def test_the_kill_switch_means_the_same_everywhere(
    captured: Capture, monkeypatch: pytest.MonkeyPatch, yes: str
) -> None:
    monkeypatch.setenv("FORGE_DISABLE_METRICS", yes)

    record_metric("loss", 1.0)
    record_episode_sample("rollouts", {"reward": 1.0})
    COLLECTOR.finish()

    assert not captured.points
    assert not captured.events


@pytest.mark.feature("F6", "yes", "flush(N) says the step of what was recorded since the last flush")
def test_a_flush_says_the_step_and_goes_on_where_a_resumed_job_does(captured: Capture) -> None:
    async def job() -> None:
        collector = MetricCollector()
        COLLECTOR.begin([LoggingMode.GLOBAL_REDUCE], 40)
        for step in (40, 50):
            record_metric("loss", step / 10)
            await collector.flush(step)

    asyncio.run(job())

    assert [(point.step, point.value) for point in captured.points if point.name == "loss"] == [(40, 4.0), (50, 5.0)]


def test_what_nobody_flushes_is_recorded_at_the_step_after_the_last_flush(captured: Capture) -> None:
    async def job() -> None:
        COLLECTOR.begin([LoggingMode.GLOBAL_REDUCE], 0)
        await MetricCollector().flush(7)
        record_metric("loss", 0.5)
        await MetricCollector().shutdown()

    asyncio.run(job())

    assert the_point(captured, "loss").step == 8


def test_an_array_that_changes_after_the_call_was_recorded_as_it_was(captured: Capture) -> None:
    COLLECTOR.begin([LoggingMode.GLOBAL_REDUCE], 0)
    values = np.array([1.0, 3.0])

    record_metric("reward", values)
    values[:] = 100.0
    COLLECTOR.flush(0)

    assert (the_point(captured, "reward").value, the_point(captured, "reward").max) == (4.0, 3.0)


@pytest.mark.feature("F4", "yes", "global_reduce, per_rank_reduce, per_rank_no_reduce")
@pytest.mark.parametrize(
    ("modes", "reduction", "expected"),
    [
        ([LoggingMode.GLOBAL_REDUCE], Reduce.SUM, {"k": "sum"}),
        ([LoggingMode.PER_RANK_REDUCE], Reduce.MEAN, {"k": "rank"}),
        ([LoggingMode.PER_RANK_REDUCE], Reduce.SUM, {"k": "sum>rank"}),
        ([LoggingMode.PER_RANK_REDUCE], Reduce.STD, {"k": "std>rank"}),
        ([LoggingMode.GLOBAL_REDUCE, LoggingMode.PER_RANK_REDUCE], Reduce.MAX, {"k": "max>max,rank"}),
        ([LoggingMode.GLOBAL_REDUCE, LoggingMode.PER_RANK_REDUCE], Reduce.STD, {"k": "std", "k/std": "std>rank"}),
        ([LoggingMode.PER_RANK_NO_REDUCE], Reduce.SUM, {"k": "rank", "timestamp": "rank"}),
    ],
)
def test_a_mode_is_a_reduction(
    captured: Capture, modes: list[LoggingMode], reduction: Reduce, expected: dict[str, str]
) -> None:
    COLLECTOR.begin(modes, 0)

    record_metric("k", 2.0, reduction)
    COLLECTOR.flush(0)

    assert {point.name: point.reduction for point in captured.points} == expected


@pytest.mark.feature("F7", "better", "no value is overwritten by the next one")
def test_a_stream_keeps_every_value_in_a_row_of_its_own_with_its_time(captured: Capture) -> None:
    COLLECTOR.begin([LoggingMode.PER_RANK_NO_REDUCE], 0)

    for value in VALUES:
        COLLECTOR.push(Metric("queue", value, Reduce.SUM, timestamp=1700000000.5))

    rows = [(point.axis, point.step, point.value) for point in captured.points if point.name == "queue"]
    assert rows == [("stream", 1700000000500 + place, value) for place, value in enumerate(VALUES)]
    assert captured.values("timestamp", axis="stream") == [1700000000.5] * 3


@pytest.mark.parametrize("mode", list(LoggingMode))
def test_a_metric_without_a_time_is_of_now_and_can_be_changed_before_it_is_pushed(
    captured: Capture, mode: LoggingMode
) -> None:
    COLLECTOR.begin([mode], 0)
    before_s = time.time()
    metric = Metric("queue", 1.0, Reduce.MEAN, None)
    metric.value = 2.0

    MetricCollector().push(metric)
    metric.value = 100.0
    COLLECTOR.flush(0)

    assert [point.value for point in captured.points if point.name == "queue"] == [2.0]
    assert metric.timestamp is not None
    assert before_s <= metric.timestamp <= time.time()


class Range(MetricAccumulator):
    def reset(self) -> None:
        self.values: list[float] = []

    def append(self, value: Any) -> None:
        self.values.append(float(value))

    def get_value(self) -> float:
        return max(self.values) - min(self.values)

    def get_state(self) -> dict[str, Any]:
        return {"reduction_type": self.name, "low": min(self.values), "high": max(self.values)}

    @classmethod
    def get_reduced_value_from_states(cls, states: Sequence[Any]) -> float:
        return max(state["high"] for state in states) - min(state["low"] for state in states)


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


class Mesh:
    def __init__(self, answer: Any) -> None:
        self.answer = answer

    async def flush(self, global_step: int, return_state: bool = False) -> Any:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


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


def test_a_fetcher_that_nobody_registered_is_said_with_its_name(caplog: pytest.LogCaptureFixture) -> None:
    async def job() -> None:
        logger = await get_or_create_metric_logger()
        await logger.deregister_fetcher.call_one("TrainActor_9")

    with caplog.at_level(logging.WARNING):
        asyncio.run(job())

    assert "deregister_fetcher('TrainActor_9')" in caplog.text


@pytest.mark.feature("F18", "better", "what the others hold is recorded; the failing one is named")
def test_a_process_that_fails_does_not_fail_the_flush(captured: Capture, caplog: pytest.LogCaptureFixture) -> None:
    async def job() -> None:
        logger = await get_or_create_metric_logger()
        await logger.register_fetcher.call_one(Mesh(RuntimeError("Actor object is missing")), "dead")
        record_metric("loss", 1.0)
        await logger.flush.call_one(0)
        await logger.deregister_fetcher.call_one("dead")

    COLLECTOR.begin([LoggingMode.GLOBAL_REDUCE], 0)
    with caplog.at_level(logging.WARNING):
        asyncio.run(job())

    assert the_point(captured, "loss").value == 1.0
    assert "'dead'" in caplog.text
    assert "Actor object is missing" in caplog.text


@pytest.mark.feature("F14", "yes", "wrong use is said once")
def test_processes_that_disagree_about_a_reduction_lose_nothing_of_a_flush(
    captured: Capture, caplog: pytest.LogCaptureFixture
) -> None:
    forget_said()
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


def test_there_is_one_collector_in_a_process() -> None:
    assert MetricCollector() is MetricCollector()


def test_a_flush_before_the_backends_is_said_and_returns_no_states(caplog: pytest.LogCaptureFixture) -> None:
    forget_said()

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


def test_an_empty_accumulator_is_absent_not_zero() -> None:
    assert reduce_metrics_states([{"k": reduce.accumulator_class().get_state()} for reduce in [Reduce.MEAN]]) == []


def table_of(captured: Capture, name: str) -> list[list[Any]]:
    [event] = [event for event in captured.events if event.kind == "ml.table" and event.name == name]
    assert event.body["columns"] == ["reward", "response"]
    return list(event.body["rows"])


@dataclass
class Episode:
    reward: float
    response: str


@pytest.mark.feature("F15", "yes", "a table with the best and the worst by reward")
def test_the_best_and_the_worst_episodes_become_a_table(captured: Capture) -> None:
    COLLECTOR.begin([LoggingMode.GLOBAL_REDUCE], 0)

    for reward in (0.2, 0.9, 0.1, 0.5):
        record_episode_sample("rollouts", Episode(reward, f"r{reward}"))
    asyncio.run(MetricCollector().flush(2))

    assert table_of(captured, "rollouts") == [[0.9, "r0.9"], [0.1, "r0.1"]]


def test_more_samples_can_be_kept_by_another_number_and_none_twice(captured: Capture) -> None:
    COLLECTOR.begin([LoggingMode.GLOBAL_REDUCE], 0)

    for reward in (0.2, 0.9, 0.1):
        record_metric("rollouts", {"reward": reward, "response": "x"}, Sample(top_k=2, bottom_k=2))
    asyncio.run(MetricCollector().flush(2))

    assert [row[0] for row in table_of(captured, "rollouts")] == [0.9, 0.2, 0.1]


def test_a_sample_without_a_reward_is_said_and_never_the_worst(
    captured: Capture, caplog: pytest.LogCaptureFixture
) -> None:
    COLLECTOR.begin([LoggingMode.GLOBAL_REDUCE], 0)

    record_metric("rollouts", {"response": "lost"}, Reduce.SAMPLE)
    record_metric("rollouts", {"reward": 1.0, "response": "kept"}, Reduce.SAMPLE)
    asyncio.run(MetricCollector().flush(2))

    assert table_of(captured, "rollouts") == [[1.0, "kept"]]
    assert "no number 'reward'" in caplog.text


def test_all_mistakes_of_a_configuration_are_said_at_once() -> None:
    async def job() -> None:
        logger = await get_or_create_metric_logger()
        await logger.init_backends.call_one({"console": {"logging_mode": "all"}, "wandb": {"logging_mode": 3}})

    with pytest.raises(ConfigError) as error:
        asyncio.run(job())

    assert len(error.value.problems) == 2
    assert all("per_rank_reduce" in problem for problem in error.value.problems)


class Hanging:
    async def flush(self, global_step: int, return_state: bool = False) -> Any:
        await asyncio.Event().wait()


@pytest.mark.feature("F17", "yes", "a flush leaves out who does not answer; shutdown has a deadline")
def test_a_process_that_hangs_holds_up_neither_a_flush_nor_the_end(
    captured: Capture, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("otel_ml.compat.forge.controller.FLUSH_TIMEOUT_S", 0.01)

    async def job() -> None:
        logger = await get_or_create_metric_logger()
        await logger.register_fetcher.call_one(Hanging(), "hung")
        record_metric("loss", 1.0)
        await logger.flush.call_one(3)
        assert the_point(captured, "loss").step == 3
        await logger.shutdown.call_one()

    COLLECTOR.begin([LoggingMode.GLOBAL_REDUCE], 0)
    asyncio.run(job())

    assert "'hung'" in caplog.text


@pytest.mark.feature("F10", "yes", "an event names the process; its rank, role and host are OpenTelemetry's resource")
def test_the_name_of_a_process_is_in_the_run_and_what_has_no_meaning_is_said(
    captured: Capture, caplog: pytest.LogCaptureFixture
) -> None:
    config = {"console": {"logging_mode": "per_rank_reduce", "per_rank_share_run": True, "entity": "us"}}

    asyncio.run(MetricCollector().init_backends(None, config, process_name="TrainActor_1abc_r0"))
    record_metric("loss", 1.0)
    COLLECTOR.flush(0)

    [event] = [event for event in captured.events if event.kind == "forge.process"]
    assert (event.rank, event.attributes) == (1, {"name": "TrainActor_1abc_r0"})
    assert the_point(captured, "loss").reduction == "rank"
    assert "entity, per_rank_share_run has no meaning" in caplog.text


def test_where_nobody_flushes_samples_are_written_at_the_end(captured: Capture) -> None:
    otel_ml.set_step(6)
    record_episode_sample("rollouts", {"reward": 0.5, "response": "x"})
    record_metric("latency", 3.0, Range)
    record_metric("latency", 5.0, Range)

    COLLECTOR.finish()

    assert table_of(captured, "rollouts") == [[0.5, "x"]]
    assert (the_point(captured, "latency").step, the_point(captured, "latency").value) == (6, 2.0)


def test_a_reduction_that_fails_or_is_none_stops_neither_training_nor_the_flush(
    captured: Capture, caplog: pytest.LogCaptureFixture
) -> None:
    COLLECTOR.begin([LoggingMode.GLOBAL_REDUCE], 0)

    for _ in range(2):
        record_metric("latency", "slow", Range)
        record_metric("odd", 1.0, "mean")  # type: ignore[arg-type]
    record_metric("loss", 1.0)
    asyncio.run(MetricCollector().flush(0))

    assert {point.name for point in captured.points} == {"loss"}
    assert caplog.text.count("'odd' is not recorded") == 1
    assert "'latency' is not recorded: its reduction failed with ValueError" in caplog.text


def test_the_process_that_flushes_is_in_the_step_of_the_next_flush(captured: Capture) -> None:
    COLLECTOR.begin((), 4)
    otel_ml.log({"before": 1.0})
    COLLECTOR.flush(4)
    otel_ml.log({"after": 1.0})

    assert {point.name: point.step for point in captured.points} == {"before": 4, "after": 5}


def test_a_step_that_the_program_sets_itself_is_not_moved_by_a_flush(captured: Capture) -> None:
    otel_ml.set_step(40)
    COLLECTOR.begin((), 4)
    COLLECTOR.flush(4)
    otel_ml.log({"x": 1.0})

    assert [point.step for point in captured.points] == [40]
