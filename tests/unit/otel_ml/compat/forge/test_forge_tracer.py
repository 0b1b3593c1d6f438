"""`Tracer` and `trace`: documented names, sync and async, reusable, and never in the way."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest

import otel_ml
from otel_ml.compat.forge import Tracer, trace
from otel_ml.compat.forge.collector import COLLECTOR
from otel_ml.compat.forge.device_marks import DEVICE_MARKS, DeviceMarks
from otel_ml.once import forget_said
from otel_ml.testing import Capture, capture
from tests.e2e.jobs import until


@pytest.fixture
def captured(monkeypatch: pytest.MonkeyPatch) -> Iterator[Capture]:
    for name in ("FORGE_DISABLE_METRICS", "DISABLE_PERF_METRICS", "METRIC_TIMER_USES_GPU"):
        monkeypatch.delenv(name, raising=False)
    COLLECTOR.forget()
    forget_said()
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
        time.sleep(0.01)
        tracer.step("prefill")

    [total], [prefill] = (
        captured.values("generate/total_duration_max_s"),
        captured.values("generate/prefill/duration_max_s"),
    )
    assert total >= prefill >= 0.01


def test_functions_and_coroutines_are_traced_also_when_their_calls_overlap(captured: Capture) -> None:
    @trace("push_weights")
    async def push(n: int) -> int:
        await asyncio.sleep(0.001)
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


def test_wrong_use_is_said_once_and_raises_nothing(captured: Capture, caplog: pytest.LogCaptureFixture) -> None:
    tracer = Tracer("odd")

    for _ in range(2):
        tracer.stop()
        tracer.step("early")

    assert not captured.points
    assert caplog.text.count("'odd' was stopped, and not started") == 1
    assert caplog.text.count("at step 'early', and not started") == 1


def test_without_a_device_a_gpu_tracer_measures_on_the_cpu_and_says_so(
    captured: Capture, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("METRIC_TIMER_USES_GPU", "1")

    with trace("forward", track_memory=True):
        time.sleep(0.01)

    assert captured.values("forward/total_duration_max_s")[0] >= 0.01
    assert not [name for name in reductions(captured) if "memory" in name]
    assert "measures on the CPU" in caplog.text
    assert "no memory is recorded" in caplog.text


class Event:
    """As `torch.cuda.Event`: done when the device says so."""

    def __init__(self) -> None:
        self.is_done = False

    def query(self) -> bool:
        return self.is_done


def test_what_waits_for_the_device_is_read_by_one_thread_in_order() -> None:
    marks, done = DeviceMarks(), []
    events = [Event(), Event()]

    for place, event in enumerate(events):
        marks.when_done(event, lambda place=place: done.append(place))
    events[1].is_done = True
    assert not marks.settle(0.02)
    assert done == []

    events[0].is_done = True
    until(lambda: done == [0, 1])
    assert marks.settle(20.0)


def test_nothing_is_left_of_a_tracer_that_was_never_stopped(captured: Capture) -> None:
    def abandoned() -> Any:
        Tracer("abandoned").start()

    abandoned()

    assert not captured.points


class TimedEvent(Event):
    """An event of a device that is behind; each is half a second after the one before."""

    def elapsed_time(self, other: Event) -> float:
        del other
        return 500.0


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[TimedEvent]]:
    made: list[TimedEvent] = []

    def mark() -> TimedEvent:
        made.append(TimedEvent())
        return made[-1]

    monkeypatch.setattr("otel_ml.compat.forge.tracer.device_mark", mark)
    yield made
    for event in made:
        event.is_done = True
    assert DEVICE_MARKS.settle(20.0)


def the_device_catches_up(events: list[TimedEvent]) -> None:
    for event in events:
        event.is_done = True
    assert DEVICE_MARKS.settle(20.0)


def steps(captured: Capture) -> dict[int | None, float]:
    return {point.step: point.value for point in captured.points if point.name == "forward/total_duration_max_s"}


def test_a_time_of_the_device_belongs_to_the_step_in_which_it_began(
    captured: Capture, events: list[TimedEvent]
) -> None:
    with trace("forward", timer="gpu"):
        pass
    otel_ml.set_step(1)
    the_device_catches_up(events)
    otel_ml.log({"after": 1.0})

    assert steps(captured) == {0: 0.5}
    assert [point.step for point in captured.points if point.name == "after"] == [1]


def test_a_time_of_the_device_belongs_to_the_flush_before_which_it_began(
    captured: Capture, events: list[TimedEvent]
) -> None:
    COLLECTOR.begin((), 10)
    with trace("forward", timer="gpu"):
        pass
    COLLECTOR.flush(10)
    with trace("forward", timer="gpu"):
        pass
    COLLECTOR.flush(20)
    COLLECTOR.flush(30)
    the_device_catches_up(events)
    COLLECTOR.flush(40)

    assert steps(captured) == {10: 0.5, 20: 0.5}
