"""torchforge's calls, unmodified but for the import: what is recorded, under which name, at which step."""

from __future__ import annotations

import time

import numpy as np
import pytest

import otel_ml
from otel_ml.compat.forge import (
    LoggingMode,
    Metric,
    MetricCollector,
    Reduce,
    record_episode_sample,
    record_metric,
)
from otel_ml.compat.forge.collector import COLLECTOR
from otel_ml.testing import Capture
from tests.unit.otel_ml.compat.forge.flushed import the_point

VALUES = [1.0, 2.0, 4.0]


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


def test_there_is_one_collector_in_a_process() -> None:
    assert MetricCollector() is MetricCollector()
