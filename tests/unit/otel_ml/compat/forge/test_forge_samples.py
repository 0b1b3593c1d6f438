"""Samples of episodes: the best and the worst become a table."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

import otel_ml
from otel_ml.compat.forge import (
    LoggingMode,
    MetricCollector,
    Reduce,
    Sample,
    record_episode_sample,
    record_metric,
)
from otel_ml.compat.forge.collector import COLLECTOR
from otel_ml.testing import Capture
from tests.unit.otel_ml.compat.forge.flushed import Range, the_point


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


def test_where_nobody_flushes_samples_are_written_at_the_end(captured: Capture) -> None:
    otel_ml.set_step(6)
    record_episode_sample("rollouts", {"reward": 0.5, "response": "x"})
    record_metric("latency", 3.0, Range)
    record_metric("latency", 5.0, Range)

    COLLECTOR.finish()

    assert table_of(captured, "rollouts") == [[0.5, "x"]]
    assert (the_point(captured, "latency").step, the_point(captured, "latency").value) == (6, 2.0)


def test_an_episode_that_cannot_say_what_it_is_costs_its_sample_alone(captured: Capture) -> None:
    class Broken:
        def to_dict(self) -> dict[str, Any]:
            raise RuntimeError("it was freed")

    otel_ml.set_step(1)
    record_episode_sample("episodes", Broken())
    record_metric("loss", 0.5)

    assert captured.values("loss") == [0.5]
    assert "it was freed" in captured.notices[0]
