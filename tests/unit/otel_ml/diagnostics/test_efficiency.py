"""Wall-clock buckets and thread-seconds, kept apart."""

from __future__ import annotations

import asyncio
import threading
from enum import Enum

import pytest

import otel_ml
from otel_ml.diagnostics.efficiency import Efficiency
from otel_ml.testing import Capture, otel_ml_capture

__all__ = ["otel_ml_capture"]


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.feature("N23", "better", "wall-clock buckets add up exactly; thread-seconds are another book")
def test_buckets_and_what_is_productive_add_up_to_elapsed_time(otel_ml_capture: Capture) -> None:
    clock = Clock()
    efficiency = Efficiency(clock=clock)
    otel_ml.set_step(0)
    with efficiency.wall("refit"):
        clock.now += 1.0
        with efficiency.wall("validation"):
            clock.now += 2.0
        clock.now += 1.0
    clock.now += 6.0
    efficiency.step()

    assert otel_ml_capture.values("efficiency/wall/refit") == [2.0]
    assert otel_ml_capture.values("efficiency/wall/validation") == [2.0]
    assert otel_ml_capture.values("efficiency/wall/productive") == [6.0]
    assert otel_ml_capture.values("efficiency/fraction") == [0.6]


def test_blocks_of_two_tasks_that_overlap_keep_their_names(otel_ml_capture: Capture) -> None:
    """The first that was entered ends first, which nested blocks never do."""
    clock = Clock()
    efficiency = Efficiency(clock=clock)
    otel_ml.set_step(0)
    first, second = efficiency.wall("generate"), efficiency.wall("refit")

    async def generate() -> None:
        with first:
            clock.now += 1.0
            await asyncio.sleep(0)
            clock.now += 1.0

    async def refit() -> None:
        with second:
            clock.now += 2.0
            await asyncio.sleep(0)
            clock.now += 4.0

    async def both() -> None:
        await asyncio.gather(generate(), refit())

    asyncio.run(both())
    efficiency.step()

    taken = {name: otel_ml_capture.values(f"efficiency/wall/{name}") for name in ("generate", "refit", "productive")}
    assert taken == {"generate": [1.0], "refit": [7.0], "productive": [0.0]}


def test_threads_that_work_beside_it_take_nothing_from_wall_clock(otel_ml_capture: Capture) -> None:
    clock = Clock()
    efficiency = Efficiency(clock=clock)
    otel_ml.set_step(0)
    ready, done = threading.Barrier(4), threading.Barrier(4)

    def generate() -> None:
        with efficiency.thread_seconds("generate"):
            ready.wait()
            done.wait()

    threads = [threading.Thread(target=generate) for _ in range(3)]
    for thread in threads:
        thread.start()
    ready.wait()
    clock.now += 10.0
    done.wait()
    for thread in threads:
        thread.join()
    efficiency.step()

    (point,) = [point for point in otel_ml_capture.points if point.name == "efficiency/thread_seconds/generate"]
    assert (point.value, point.reduction) == (30.0, "sum")
    assert otel_ml_capture.values("efficiency/wall/productive") == [10.0]


def test_a_wall_bucket_in_another_thread_counts_as_thread_seconds_and_says_so(otel_ml_capture: Capture) -> None:
    clock = Clock()
    efficiency = Efficiency(clock=clock)
    otel_ml.set_step(0)

    def work() -> None:
        with efficiency.wall("refit"):
            clock.now += 4.0

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    efficiency.step()

    assert otel_ml_capture.values("efficiency/thread_seconds/refit") == [4.0]
    assert otel_ml_capture.values("efficiency/wall/refit") == []
    assert "thread that does not own it" in otel_ml_capture.notices[0]


def test_a_bucket_open_at_the_end_of_a_step_is_split_between_both(otel_ml_capture: Capture) -> None:
    clock = Clock()
    efficiency = Efficiency(clock=clock)
    otel_ml.set_step(0)
    with efficiency.wall("refit"):
        clock.now += 1.0
        efficiency.step()
        otel_ml.set_step(1)
        clock.now += 3.0
    efficiency.step()

    assert otel_ml_capture.values("efficiency/wall/refit") == [1.0, 3.0]
    assert otel_ml_capture.values("efficiency/wall/productive") == [0.0, 0.0]


class Waste(str, Enum):
    REFIT = "refit"


def test_a_bucket_that_is_a_member_of_an_enum_is_its_text(otel_ml_capture: Capture) -> None:
    clock = Clock()
    efficiency = Efficiency(clock=clock)
    otel_ml.set_step(0)
    with efficiency.wall(Waste.REFIT), efficiency.thread_seconds(Waste.REFIT):
        clock.now += 1.0
    efficiency.step()

    assert otel_ml_capture.values("efficiency/wall/refit") == [1.0]
    assert otel_ml_capture.values("efficiency/thread_seconds/refit") == [1.0]
