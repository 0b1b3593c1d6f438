"""A flush says the step, whatever processes fail, hang or disagree."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import otel_ml
from otel_ml.compat.forge import (
    LoggingMode,
    MetricCollector,
    get_or_create_metric_logger,
    record_metric,
)
from otel_ml.compat.forge.collector import COLLECTOR
from otel_ml.exceptions import ConfigError
from otel_ml.testing import Capture
from tests.unit.otel_ml.compat.forge.flushed import Mesh, Range, the_point


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


@pytest.mark.parametrize("wrong", ["seven", None, 1.5, -1])
def test_a_flush_of_no_step_ends_nothing_and_the_next_one_counts(captured: Capture, wrong: Any) -> None:
    async def job() -> None:
        COLLECTOR.begin([LoggingMode.GLOBAL_REDUCE], 0)
        record_metric("lost", 0.5)
        await MetricCollector().flush(wrong)
        record_metric("loss", 0.5)
        await MetricCollector().flush(7)
        record_metric("late", 0.5)
        await MetricCollector().shutdown()

    asyncio.run(job())

    assert (the_point(captured, "loss").step, the_point(captured, "late").step) == (7, 8)


def test_what_nobody_flushes_is_recorded_at_the_step_after_the_last_flush(captured: Capture) -> None:
    async def job() -> None:
        COLLECTOR.begin([LoggingMode.GLOBAL_REDUCE], 0)
        await MetricCollector().flush(7)
        record_metric("loss", 0.5)
        await MetricCollector().shutdown()

    asyncio.run(job())

    assert the_point(captured, "loss").step == 8


def test_a_fetcher_without_a_name_takes_the_place_of_no_other(captured: Capture) -> None:
    asked: list[str] = []

    class Fetcher:
        def __init__(self, name: str) -> None:
            self.name = name

        async def flush(self, step: int, return_state: bool) -> dict[str, Any]:
            asked.append(self.name)
            return {}

    async def job() -> None:
        logger = await get_or_create_metric_logger()
        for name in ("first", "second"):
            await logger.register_fetcher.call_one(Fetcher(name))
        await logger.deregister_fetcher.call_one("fetcher_0")
        for name in ("third", "fourth"):
            await logger.register_fetcher.call_one(Fetcher(name))
        await logger.flush.call_one(1)
        await logger.shutdown.call_one()

    asyncio.run(job())

    assert sorted(asked) == ["fourth", "second", "third"]


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


SUM = {"reduction_type": "sum", "total": 2.0, "count": 1}


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"tokens": SUM, "loss": 3.0}, "a float under 'loss'"),
        ({"tokens": SUM, "loss": {"sum": 3.0}}, "a dict under 'loss'"),
        ({"rank_0": {"tokens": SUM, "loss": 3.0}}, "a float under 'loss'"),
        ({"rank_0": {"tokens": SUM}, "rank_1": 3.0}, "a float"),
    ],
)
def test_what_is_no_state_in_an_answer_is_said_and_the_states_are_recorded(
    captured: Capture, caplog: pytest.LogCaptureFixture, answer: Any, said: str
) -> None:
    flush_with(answer)

    assert the_point(captured, "tokens").value == 2.0
    assert [point.name for point in captured.points] == ["tokens"]
    assert f"Fetcher 'odd' answered a flush with {said}." in caplog.text


@pytest.mark.parametrize("answer", [{"loss": 3.0}, {"loss": {"sum": 3.0}}, [SUM], 3.0, np.zeros(2)])
def test_an_answer_without_a_state_is_said_and_the_flush_goes_on(
    captured: Capture, caplog: pytest.LogCaptureFixture, answer: Any
) -> None:
    record_metric("own", 1.0)

    flush_with(answer)

    assert the_point(captured, "own").value == 1.0
    assert "Fetcher 'odd' answered a flush with a " in caplog.text


@pytest.mark.parametrize("answer", [None, {}, {"rank_0": {}, "rank_1": None}])
def test_a_fetcher_that_holds_nothing_says_nothing(
    captured: Capture, caplog: pytest.LogCaptureFixture, answer: Any
) -> None:
    flush_with(answer)

    assert (captured.points, caplog.text) == ([], "")


def flush_with(answer: Any) -> None:
    async def job() -> None:
        logger = await get_or_create_metric_logger()
        await logger.register_fetcher.call_one(Mesh(answer), "odd")
        try:
            await logger.flush.call_one(0)
        finally:
            await logger.deregister_fetcher.call_one("odd")

    COLLECTOR.begin([LoggingMode.GLOBAL_REDUCE], 0)
    asyncio.run(job())


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


def test_a_backend_without_options_is_one(captured: Capture) -> None:
    async def job() -> None:
        logger = await get_or_create_metric_logger()
        await logger.init_backends.call_one({"console": None})
        record_metric("loss", 0.5)
        await logger.flush.call_one(3)

    asyncio.run(job())

    assert the_point(captured, "loss").step == 3


def test_a_name_that_is_no_text_is_written_as_one_and_the_others_are_flushed(captured: Capture) -> None:
    COLLECTOR.begin([LoggingMode.GLOBAL_REDUCE], 0)
    for name in ("before", 3, None, "after"):
        record_metric(name, 1.0)  # type: ignore[arg-type]

    asyncio.run(MetricCollector().flush(0))

    assert {point.name for point in captured.points} == {"before", "3", "None", "after"}


def test_where_metrics_are_switched_off_backends_begin_no_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FORGE_DISABLE_METRICS", "true")
    monkeypatch.setenv("OTEL_ML_DIR", str(tmp_path / "runs"))

    async def job() -> None:
        logger = await get_or_create_metric_logger(process_name="Controller")
        await logger.init_backends.call_one({"console": {"logging_mode": "global_reduce"}})
        record_metric("loss", 0.5)
        await logger.flush.call_one(1)
        await logger.shutdown.call_one()

    asyncio.run(job())

    assert not (tmp_path / "runs").exists()
