"""Timers on a CUDA device: what its streams took, by events of a pool, without a wait and with few questions."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest
import torch

from otel_ml._internal.devices.device_timers import DEVICE_TIMERS, DeviceTimers
from otel_ml._internal.messages.recorder import Batch, recorder
from otel_ml._internal.record.fold import FOLDER
from otel_ml._internal.record.log import log
from otel_ml._internal.steps.step import set_step
from otel_ml._internal.timers.manual_timer import timer
from otel_ml._internal.timers.timing import timed
from tests.cuda_events import CudaEvents, cuda_events
from tests.fake_cuda import FakeCuda, FakeGraph
from tests.unit.otel_ml.record.conftest import Recorded
from tests.unit.otel_ml.record.decoded import manifests, points

__all__ = ["cuda_events"]

HOUR_S = 3600.0
"""What the device takes: more than any pause of the machine that runs the test, so never a time of the CPU."""


def seconds(batch: Batch) -> dict[str, float]:
    return {point.name.removeprefix("time/"): point.raw.sum for point in points(batch)}


def of_steps(batch: Batch, name: str) -> dict[int | None, float]:
    return {point.step: point.raw.sum for point in points(batch, f"time/{name}")}


def test_a_timer_takes_what_the_device_took_and_waits_for_it_with_the_manifest(
    recorded: Recorded, cuda_events: CudaEvents
) -> None:
    set_step(0)
    with timed("kernel", device="cuda"):
        cuda_events.work(HOUR_S)
    log({"x": 1.0})
    set_step(1)
    first = recorded.collect(after_s=5)
    cuda_events.catch_up()
    second = recorded.collect(after_s=6)

    assert [point.name for point in points(first)] == ["x"]
    assert manifests(first) == {}
    assert seconds(second) == {"kernel": HOUR_S}
    assert manifests(second) == {("step", 0): 2}


def test_a_timer_is_two_events_and_none_is_made_once_there_are_enough(
    recorded: Recorded, cuda_events: CudaEvents
) -> None:
    for step in range(100):
        set_step(step)
        for place in range(20):
            with timed(f"t{place}", device="cuda"):
                cuda_events.work(1.0)
        cuda_events.catch_up()
        recorded.collect()

    assert cuda_events.calls["recorded"] == 2 * 20 * 100
    assert cuda_events.calls["made"] == 2 * 20


def test_a_step_is_asked_for_once_and_not_each_of_its_timers(recorded: Recorded, cuda_events: CudaEvents) -> None:
    for place in range(20):
        with timed(f"t{place}", device="cuda"):
            cuda_events.work(place + 1.0)
    cuda_events.catch_up()
    batch = recorded.collect()

    assert seconds(batch) == {f"t{place}": place + 1.0 for place in range(20)}
    assert cuda_events.calls["queried"] == 1


def test_what_a_device_that_is_behind_has_done_is_found_with_few_questions(
    recorded: Recorded, cuda_events: CudaEvents
) -> None:
    for step in range(64):
        set_step(step)
        with timed("t", device="cuda"):
            cuda_events.work(1.0)
    found: dict[int | None, float] = {}
    for until in (0, 7, 7, 40, 64):
        cuda_events.catch_up(until)
        cuda_events.calls.clear()
        found |= of_steps(recorded.collect(), "t")
        assert sorted(found, key=str) == sorted(range(until), key=str)
        assert cuda_events.calls["queried"] <= 8

    assert set(found.values()) == {1.0}


def test_timers_inside_each_other_take_what_is_theirs(recorded: Recorded, cuda_events: CudaEvents) -> None:
    with timed("outer", device="cuda"):
        cuda_events.work(1.0)
        for _ in range(2):
            with timed("inner", device="cuda"):
                cuda_events.work(10.0)
        cuda_events.work(100.0)
    cuda_events.catch_up()

    assert seconds(recorded.collect()) == {"outer": 121.0, "inner": 20.0}


def test_a_stream_that_hangs_holds_up_no_other_one(recorded: Recorded, cuda_events: CudaEvents) -> None:
    with cuda_events.on(stream=7), timed("hangs", device="cuda"):
        cuda_events.work(HOUR_S)
    with timed("runs", device="cuda"):
        cuda_events.work(2.0)
    cuda_events.catch_up(stream=(0, 0))

    assert seconds(recorded.collect()) == {"runs": 2.0}
    assert seconds(recorded.collect(final=True)) == {}
    assert recorder.dropped == {"device_not_done": 1}


def test_a_timer_that_ends_on_another_stream_waits_for_both_and_is_never_negative(
    recorded: Recorded, cuda_events: CudaEvents
) -> None:
    cuda_events.work(HOUR_S)
    by_hand = timer("moved", device="cuda")
    by_hand.start()
    with cuda_events.on(stream=7):
        cuda_events.work(1.0)
        by_hand.stop()
    cuda_events.catch_up(stream=(0, 7))
    assert seconds(recorded.collect()) == {}

    cuda_events.catch_up()
    assert seconds(recorded.collect()) == {"moved": 0.0}


def test_a_timer_ends_on_the_device_it_began_on(recorded: Recorded, cuda_events: CudaEvents) -> None:
    for device in (0, 1):
        with cuda_events.on(device), timed(f"of {device}", device="cuda"):
            cuda_events.work(device + 1.0)
            cuda_events.device = 1 - device  # as a `torch.cuda.set_device()` inside does
            cuda_events.work(HOUR_S)
        cuda_events.catch_up()
        recorded.collect()
    with cuda_events.on(1), timed("again", device="cuda"):
        cuda_events.work(5.0)
    cuda_events.catch_up()

    assert seconds(recorded.collect()) == {"again": 5.0}
    assert cuda_events.calls["made"] == 4, "events of a device are used for that device alone"
    assert recorder.dropped == {}


def test_threads_that_share_a_stream_lose_nothing(recorded: Recorded, cuda_events: CudaEvents) -> None:
    def measure(name: str) -> None:
        for _ in range(50):
            with timed(name, device="cuda", span=False):
                pass

    threads = [threading.Thread(target=measure, args=(f"t{place}",)) for place in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    cuda_events.catch_up()

    counts = {point.name: point.raw.count for point in points(recorded.collect())}
    assert counts == {f"time/t{place}": 50 for place in range(4)}
    assert cuda_events.calls["queried"] <= 4


def test_each_step_gets_its_own_times_however_far_the_device_is_behind(
    recorded: Recorded, cuda_events: CudaEvents
) -> None:
    for step in range(4):
        set_step(step)
        with timed("forward", device="cuda"):
            cuda_events.work(step + 1.0)
    set_step(4)
    assert points(recorded.collect()) == []
    cuda_events.catch_up()

    assert of_steps(recorded.collect(), "forward") == {step: step + 1.0 for step in range(4)}


def test_functions_generators_and_tasks_are_timed_each_by_itself(recorded: Recorded, cuda_events: CudaEvents) -> None:
    @timed("items", device="cuda")
    def items() -> Iterator[int]:
        for item in range(3):
            cuda_events.work(1.0)
            yield item

    @timed("task", device="cuda")
    async def task() -> None:
        cuda_events.work(1.0)
        await asyncio.sleep(0)

    async def both() -> None:
        await asyncio.gather(task(), task())

    for _ in items():
        cuda_events.work(HOUR_S)
    asyncio.run(both())
    cuda_events.catch_up()

    assert seconds(recorded.collect()) == {"items": 3.0, "task": 2.0 + 1.0}


def test_a_region_that_raises_is_timed_and_one_that_never_ends_is_nothing(
    recorded: Recorded, cuda_events: CudaEvents
) -> None:
    timer("forgotten", device="cuda").start()
    with suppress(KeyError), timed("raises", device="cuda"):
        cuda_events.work(2.0)
        raise KeyError
    cuda_events.catch_up()

    assert seconds(recorded.collect(final=True)) == {"raises": 2.0}
    assert recorder.dropped == {}


def test_events_that_are_kept_and_times_that_are_waited_for_are_bounded(
    recorded: Recorded, cuda_events: CudaEvents, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DeviceTimers, "MOST_FREE", 10)
    monkeypatch.setattr(DeviceTimers, "MOST_ENDED", 30)
    monkeypatch.setattr(DeviceTimers, "MOST_STREAMS", 2)
    for stream in range(3):
        with cuda_events.on(stream=stream):
            for _ in range(50):
                with timed("t", device="cuda", span=False):
                    cuda_events.work(1.0)
    assert points(recorded.collect()) == []
    cuda_events.catch_up()
    (point,) = points(recorded.collect())

    assert point.moments == (150, 150.0)
    before = cuda_events.calls["made"]
    for _ in range(10):
        with timed("t", device="cuda", span=False):
            pass
    assert cuda_events.calls["made"] == before + 2 * 10 - 10


@pytest.mark.parametrize("at", ["begin", "end"])
def test_a_timer_measures_on_the_cpu_where_cuda_fails_and_goes_on_where_it_works_again(
    recorded: Recorded, cuda_events: CudaEvents, at: str
) -> None:
    with timed("warm", device="cuda"):
        pass
    cuda_events.catch_up()
    recorded.collect()
    cuda_events.error = "CUDA error: device-side assert triggered" if at == "begin" else None
    with timed("t", device="cuda"):
        cuda_events.error = "CUDA error: device-side assert triggered"
    (point,) = points(recorded.collect())
    assert 0 < point.raw.sum < HOUR_S

    cuda_events.error = None
    with timed("t", device="cuda"):
        cuda_events.work(HOUR_S)
    cuda_events.catch_up()
    assert seconds(recorded.collect()) == {"t": HOUR_S}


def test_a_device_that_fails_before_it_is_done_costs_its_times_and_nothing_else(
    recorded: Recorded, cuda_events: CudaEvents
) -> None:
    for name in ("a", "b"):
        with timed(name, device="cuda"):
            pass
    log({"y": 1.0})
    cuda_events.error = "CUDA error: device-side assert triggered"

    assert [point.name for point in points(recorded.collect(final=True))] == ["y"]
    assert recorder.dropped == {"device_error": 2}


@pytest.mark.parametrize("state", ["not initialized", "capturing"])
def test_a_timer_leaves_cuda_alone_before_its_first_use_and_in_captured_graphs(
    recorded: Recorded, cuda_events: CudaEvents, state: str
) -> None:
    cuda_events.is_initialized, cuda_events.is_capturing = state != "not initialized", state == "capturing"
    with timed("t", device="cuda"):
        pass

    (point,) = points(recorded.collect())
    assert 0 < point.raw.sum < HOUR_S
    assert cuda_events.calls == {}


def test_a_timer_around_the_capture_of_a_graph_measures_on_the_device(
    recorded: Recorded, cuda_events: CudaEvents
) -> None:
    with timed("t", device="cuda"):
        cuda_events.is_capturing = True
        with timed("inside", device="cuda"):
            pass
        cuda_events.is_capturing = False
        cuda_events.work(HOUR_S)
    cuda_events.catch_up()

    found = seconds(recorded.collect())
    assert found["t"] == HOUR_S
    assert 0 < found["inside"] < HOUR_S


def test_a_forked_child_uses_no_event_of_its_parent(recorded: Recorded, cuda_events: CudaEvents) -> None:
    with timed("t", device="cuda"):
        pass
    cuda_events.catch_up()
    recorded.collect()
    child = os.fork()
    if child == 0:
        cuda_events.is_initialized = False  # as torch says it in a forked child
        cuda_events.calls.clear()
        with timed("t", device="cuda"):
            pass
        os._exit(0 if not cuda_events.calls else 1)

    assert os.waitpid(child, 0)[1] == 0


def test_a_torch_older_than_its_accelerators_has_its_own_kind_of_event(
    recorded: Recorded, cuda_events: CudaEvents, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = torch.Event
    monkeypatch.setattr(torch.cuda, "Event", lambda *, enable_timing: made("cuda", enable_timing=enable_timing))
    monkeypatch.delattr(torch, "accelerator")
    monkeypatch.delattr(torch, "Event")
    with timed("t", device="cuda"):
        cuda_events.work(HOUR_S)
    cuda_events.catch_up()

    assert seconds(recorded.collect()) == {"t": HOUR_S}


def test_a_timer_without_cuda_measures_on_the_cpu(recorded: Recorded) -> None:
    with timed("t", device="cuda"):
        pass

    (point,) = points(recorded.collect())
    assert point.raw.count == 1


def test_the_time_of_a_device_may_be_recorded_under_several_names(recorded: Recorded, cuda_events: CudaEvents) -> None:
    elapsed = DEVICE_TIMERS.begin()
    assert elapsed is not None
    cuda_events.work(HOUR_S)
    assert DEVICE_TIMERS.end(elapsed)
    for name in ("a", "b"):
        log({name: elapsed})
    cuda_events.catch_up()

    assert {point.name: point.raw.sum for point in points(recorded.collect())} == {"a": HOUR_S, "b": HOUR_S}
    assert FOLDER.deferred == []


def test_a_torch_that_is_only_half_there_is_no_device() -> None:
    code = (
        "import sys, types\n"
        "sys.modules['torch'] = types.ModuleType('torch')\n"
        "from otel_ml._internal.devices.device_timers import DEVICE_TIMERS\n"
        "assert DEVICE_TIMERS.begin() is None\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_times_are_read_while_training_captures_a_graph_and_nothing_waits(recorded: Recorded, cuda: FakeCuda) -> None:
    with timed("t", device="cuda"):
        cuda.launch(lambda: setattr(cuda, "clock_ms", HOUR_S * 1000))
    graph, found = FakeGraph(), []
    with torch.cuda.graph(graph):
        thread = threading.Thread(target=lambda: found.append(recorded.collect()))
        thread.start()
        thread.join()

    assert seconds(found[0]) == {"t": HOUR_S}
    graph.replay()
