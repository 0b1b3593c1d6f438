"""`Tracer` and `trace`: documented names, sync and async, reusable, and never in the way."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import otel_ml
from otel_ml.compat.forge import Tracer, trace
from otel_ml.compat.forge.collector import COLLECTOR
from otel_ml.compat.forge.modes import LoggingMode
from otel_ml.testing import Capture, capture
from otel_ml.warn_once import forget_warnings
from tests.cuda_events import CudaEvents, cuda_events

__all__ = ["cuda_events"]

HOUR_S = 3600.0
"""What the device takes: more than any pause of the machine that runs the test, so never a time of the CPU."""


@pytest.fixture
def captured(monkeypatch: pytest.MonkeyPatch) -> Iterator[Capture]:
    for name in ("FORGE_DISABLE_METRICS", "DISABLE_PERF_METRICS", "METRIC_TIMER_USES_GPU"):
        monkeypatch.delenv(name, raising=False)
    COLLECTOR.forget()
    forget_warnings()
    with capture() as run:
        otel_ml.set_step(0)
        yield run


def reductions(captured: Capture) -> dict[str, tuple[str, int]]:
    return {point.name: (point.reduction, point.count) for point in captured.points}


@pytest.mark.feature("F12", "better", "steps, decorators and async; nothing waits for the device")
def test_a_tracer_records_each_step_and_the_total_and_can_be_used_again(captured: Capture) -> None:
    tracer = Tracer("rl_trainer")

    for _ in range(2):
        tracer.start()
        tracer.step("forward")
        tracer.step("backward")
        tracer.stop()

    names = [f"rl_trainer/{step}/duration" for step in ("forward", "backward")] + ["rl_trainer/total_duration"]
    expected = {
        f"{name}_{end}_s": (reduction, 2) for name in names for end, reduction in (("avg", "mean"), ("max", "max"))
    }
    assert reductions(captured) == expected


def test_a_total_is_at_least_its_steps(captured: Capture) -> None:
    with trace("generate") as tracer:
        time.sleep(0.01)  # what is measured
        tracer.step("prefill")

    [total], [prefill] = (
        captured.values("generate/total_duration_max_s"),
        captured.values("generate/prefill/duration_max_s"),
    )
    assert total >= prefill >= 0.01


def test_functions_and_coroutines_are_traced_also_when_their_calls_overlap(captured: Capture) -> None:
    @trace("push_weights")
    async def push(n: int) -> int:
        await asyncio.sleep(0.001)  # what is measured
        return n

    @trace("score")
    def score(n: int) -> int:
        return score(n - 1) if n else 0

    async def job() -> list[int]:
        return list(await asyncio.gather(*(push(n) for n in range(5))))

    assert asyncio.run(job()) == [0, 1, 2, 3, 4]
    assert score(2) == 0
    assert reductions(captured)["push_weights/total_duration_avg_s"] == ("mean", 5)
    assert reductions(captured)["score/total_duration_max_s"] == ("max", 3)


def test_an_exception_of_the_user_passes_and_is_timed(captured: Capture) -> None:
    with pytest.raises(ZeroDivisionError), trace("bad"):
        1 / 0  # noqa: B018

    assert reductions(captured)["bad/total_duration_max_s"] == ("max", 1)


@pytest.mark.parametrize("yes", ["true", "1", "yes"])
@pytest.mark.parametrize("switch", ["DISABLE_PERF_METRICS", "FORGE_DISABLE_METRICS"])
def test_the_switches_silence_tracers(
    captured: Capture, monkeypatch: pytest.MonkeyPatch, switch: str, yes: str
) -> None:
    monkeypatch.setenv(switch, yes)

    with trace("generate") as tracer:
        tracer.step("prefill")

    assert not captured.points


@pytest.mark.parametrize("out_of_order", ["stop", "step", "start twice"])
def test_a_tracer_that_is_used_out_of_order_raises_the_error_of_torchforge(
    captured: Capture, out_of_order: str
) -> None:
    tracer = Tracer("odd")
    calls = {
        "stop": [tracer.stop],
        "step": [lambda: tracer.step("early")],
        "start twice": [tracer.start, tracer.start],
    }
    *before, last = calls[out_of_order]
    for call in before:
        call()

    with pytest.raises(ValueError, match="Tracer 'odd' was"):
        last()

    assert not captured.points


def test_a_tracer_that_is_switched_off_has_no_order(captured: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISABLE_PERF_METRICS", "true")
    tracer = Tracer("off")

    tracer.start()
    tracer.start()
    tracer.step("a")
    tracer.stop()
    tracer.stop()

    assert not captured.points


def test_without_a_device_a_gpu_tracer_measures_on_the_cpu_and_says_so(
    captured: Capture, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("METRIC_TIMER_USES_GPU", "1")

    with trace("forward", track_memory=True):
        time.sleep(0.01)  # what is measured

    assert captured.values("forward/total_duration_max_s")[0] >= 0.01
    assert not [name for name in reductions(captured) if "memory" in name]
    assert "measures on the CPU" in caplog.text
    assert "no memory is recorded" in caplog.text


def test_nothing_is_left_of_a_tracer_that_was_never_stopped(captured: Capture) -> None:
    def abandoned() -> Any:
        Tracer("abandoned").start()

    abandoned()

    assert not captured.points


def steps(captured: Capture, name: str = "forward/total_duration") -> dict[int | None, float]:
    return {point.step: point.value for point in captured.points if point.name == f"{name}_max_s"}


def test_each_step_has_its_own_times_of_a_device_that_is_behind(captured: Capture, cuda_events: CudaEvents) -> None:
    for step in range(4):
        otel_ml.set_step(step)
        tracer = Tracer("work", timer="gpu")
        tracer.start()
        cuda_events.work(step + 1.0)
        tracer.step("a")
        cuda_events.work(10.0)
        tracer.step("b")
        tracer.stop()
    otel_ml.set_step(4)
    assert not captured.points
    cuda_events.catch_up()

    assert steps(captured, "work/a/duration") == {step: step + 1.0 for step in range(4)}
    assert steps(captured, "work/b/duration") == dict.fromkeys(range(4), 10.0)
    assert steps(captured, "work/total_duration") == {step: step + 11.0 for step in range(4)}
    assert set(reductions(captured).values()) == {("mean", 1), ("max", 1)}


def test_a_time_of_the_device_belongs_to_the_step_in_which_it_began(captured: Capture, cuda_events: CudaEvents) -> None:
    with trace("forward", timer="gpu"):
        cuda_events.work(HOUR_S)
        otel_ml.set_step(1)
    cuda_events.catch_up()
    otel_ml.log({"after": 1.0})

    assert steps(captured) == {0: HOUR_S}
    assert [point.step for point in captured.points if point.name == "after"] == [1]


def test_a_time_of_the_device_belongs_to_the_flush_before_which_it_began(
    captured: Capture, cuda_events: CudaEvents
) -> None:
    COLLECTOR.begin((), 10)
    with trace("forward", timer="gpu"):
        cuda_events.work(1.0)
    COLLECTOR.flush(10)
    with trace("forward", timer="gpu"):
        cuda_events.work(2.0)
        COLLECTOR.flush(20)
    COLLECTOR.flush(30)
    cuda_events.catch_up()
    COLLECTOR.flush(40)

    assert steps(captured) == {10: 1.0, 20: 2.0}


@pytest.mark.parametrize("mode", list(LoggingMode))
def test_a_time_of_the_device_is_in_the_run_in_every_logging_mode(
    captured: Capture, cuda_events: CudaEvents, mode: LoggingMode
) -> None:
    COLLECTOR.begin((mode,), 0)
    with trace("forward", timer="gpu"):
        cuda_events.work(HOUR_S)
    COLLECTOR.flush(0)
    cuda_events.catch_up()

    found = {point.name: point.value for point in captured.points if point.name.startswith("forward/")}
    assert found == dict.fromkeys(("forward/total_duration_avg_s", "forward/total_duration_max_s"), HOUR_S)


GIB = 2**30


def test_memory_of_a_traced_block_is_what_it_left_and_its_peak(
    captured: Capture, cuda_events: CudaEvents, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with trace("load", track_memory=True):
        cuda_events.allocate(5 * GIB)
        with trace("inner", track_memory=True):
            cuda_events.allocate(-3 * GIB)
    with trace("train", track_memory=True):
        cuda_events.allocate(GIB)

    found = {point.name: point.value for point in captured.points if "memory" in point.name}
    assert found == {
        "load/memory_delta_end_start_avg_gb": 2.0,
        "load/memory_peak_max_gb": 5.0,
        "train/memory_delta_end_start_avg_gb": 1.0,
        "train/memory_peak_max_gb": 3.0,
    }


def test_a_device_that_fails_costs_the_memory_of_a_traced_block_and_not_the_training(
    captured: Capture, cuda_events: CudaEvents, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with trace("load", track_memory=True):
        cuda_events.error = "CUDA error: device-side assert triggered"

    assert {"load/total_duration_avg_s", "load/total_duration_max_s"} == set(reductions(captured))


@pytest.mark.parametrize("make", [Tracer, trace])
def test_a_clock_that_there_is_not_is_refused_where_it_is_named(make: Any) -> None:
    with pytest.raises(ValueError, match=r"timer must be .cpu. or .gpu., got 'cuda'"):
        make("generate", timer="cuda")
