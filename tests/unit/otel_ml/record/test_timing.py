"""Blocks and timers: at which step a time counts, and what happens where nothing is measured."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections import Counter

import pytest

from otel_ml._internal.error_reporting import reporter
from otel_ml._internal.messages.recorder import recorder
from otel_ml._internal.record.log import log
from otel_ml._internal.series.definition import define_metric
from otel_ml._internal.steps.step import set_step, step
from otel_ml._internal.timers.manual_timer import timer
from otel_ml._internal.timers.step_loop import steps
from otel_ml._internal.timers.timing import timed
from tests.unit.otel_ml.record.decoded import counts, every_point, points, spans


def test_a_block_is_a_metric_in_seconds_and_the_slowest_rank_counts(recorded):
    set_step(1)
    begin = time.perf_counter()
    with timed("forward"):
        time.sleep(0.01)  # what is measured
    elapsed = time.perf_counter() - begin

    (point,) = points(recorded.collect(), "time/forward")
    assert point.reduction == "sum>max"
    assert 0.01 <= point.raw.sum <= elapsed
    assert point.step == 1


def test_times_of_one_step_accumulate(recorded):
    set_step(1)
    forward = timer("forward")
    for _ in range(3):
        forward.start()
        forward.stop()
    timer("forward").start()
    timer("forward").stop()

    assert counts(recorded.collect(), "time/forward") == {1: 4}


def test_a_timer_is_a_block_and_a_decorator_too(recorded):
    set_step(1)
    by_hand = timer("by_hand")

    with by_hand as span:
        span.set_attribute("shard", 3)
        with by_hand:
            pass
    with pytest.raises(ValueError, match="of the block"), by_hand:
        raise ValueError("of the block")

    @timer("decorated", level=1)
    def twice(number: int) -> int:
        return 2 * number

    assert [twice(1), twice(2)] == [2, 4]
    batch = recorded.collect()
    assert counts(batch, "time/by_hand") == {1: 3}
    assert counts(batch, "time/decorated") == {1: 2}
    found = [span for span in spans(batch) if span.name == "by_hand"]
    assert sorted([a.value.int_value for a in span.attributes if a.key == "shard"] for span in found) == [[], [], [3]]
    assert sum(span.status.code == 2 for span in found) == 1, "the block that raised"


def test_a_timer_above_the_level_is_a_block_that_measures_nothing(recorded):
    set_step(1)
    with timer("rare", level=9) as span:
        span.set_attribute("shard", 3)

    assert timer("rare", level=9)(lambda: 7)() == 7
    assert counts(recorded.collect(), "time/rare") == {}


def test_a_timer_counts_where_it_began_while_that_step_goes_on(recorded):
    set_step(1)
    with step(5):
        outer = timer("x")
        outer.start()
    outer.stop()
    with step(6):
        inside = timer("y")
        inside.start()
        with step(7):
            inside.stop()

    batch = recorded.collect()
    assert counts(batch, "time/x") == {1: 1}, "step 5 had ended"
    assert counts(batch, "time/y") == {6: 1}


def test_a_timer_over_a_boundary_counts_at_the_step_then_current_and_its_span_keeps_the_first(recorded):
    set_step(1)
    with timed("push"):
        set_step(2)

    batch = recorded.collect()
    assert counts(batch, "time/push") == {2: 1}
    (span,) = spans(batch)
    assert {a.key: a.value.int_value for a in span.attributes}["ml.step"] == 1


def test_a_timer_begun_before_the_first_step_counts_at_the_one_then_current(recorded):
    with timed("setup"):
        set_step(0)

    assert counts(recorded.collect(), "time/setup") == {0: 1}


def test_one_with_object_may_be_entered_by_many_tasks_and_inside_itself(recorded):
    shared = timed("shared")

    async def task(i: int, turns: list[asyncio.Event]) -> None:
        with step(i), shared:
            await turns[i + 1].wait()
            with shared:
                await asyncio.sleep(0)
        turns[i].set()

    async def job() -> None:
        turns = [asyncio.Event() for _ in range(6)]
        turns[5].set()
        await asyncio.gather(*(task(i, turns) for i in range(5)))

    asyncio.run(job())
    with shared:
        pass

    found = Counter[int | None]()
    for point in points(recorded.collect(), "time/shared"):
        found[point.step] += point.raw.count
    assert found == {0: 3, 1: 2, 2: 2, 3: 2, 4: 2}  # the last is of the step that was left last


def test_exceptions_pass_through_and_the_time_is_still_recorded(recorded):
    with pytest.raises(ZeroDivisionError), timed("broken"):
        _ = 1 / 0

    batch = recorded.collect()
    assert counts(batch, "time/broken") == {None: 1}
    (span,) = spans(batch)
    assert span.status.code == 2
    assert "ZeroDivisionError" in span.status.message


@pytest.mark.feature("M1", "yes", "`level=`, `OTEL_ML_TIMER_LEVEL`")
@pytest.mark.feature("R12", "yes", "`level=`, `OTEL_ML_TIMER_LEVEL`")
def test_a_level_above_the_threshold_measures_nothing_until_it_is_raised(recorded):
    @timed("detail", level=2)
    def detail() -> int:
        return 1

    def both() -> None:
        assert detail() == 1
        with timed("block", level=2):
            pass
        timer("hand", level=2).start()
        timer("hand", level=2).stop()

    both()
    assert recorded.collect().values == 0
    recorded.configure(timer_level=2)
    both()
    assert {point.name for point in points(recorded.collect())} == {"time/detail", "time/block", "time/hand"}


def test_nothing_is_measured_while_recording_is_off(recorded):
    recorder.enabled = False

    @timed
    def f() -> int:
        return 1

    with timed("x"):
        assert f() == 1
    for item in steps([1, 2]):
        log({"x": item})
    recorder.enabled = True

    assert recorded.collect().values == 0


@pytest.mark.feature("N13", "yes", "`reduce=`, over the ranks too")
def test_the_reduction_of_a_timer_is_the_users_choice(recorded):
    define_metric("time/defined", reduce="mean", within="sum")
    with timed("defined"), timed("chosen", reduce=("mean", "max")):
        pass

    found = {point.name: point.reduction for point in points(recorded.collect())}
    assert found == {"time/defined": "sum>mean", "time/chosen": "sum>mean,max"}


def test_a_stop_without_start_is_said_and_harmless(recorded):
    said: list[str] = []
    reporter.connect(said.append)
    timer("x").stop()

    assert len(said) == 1
    assert recorded.collect().values == 0


@pytest.mark.parametrize("name", ["", 3, ["a"]])
def test_a_timer_with_a_bad_name_runs_its_code(recorded, name):
    with timed(name):
        ran = True
    timer(name).start()

    assert ran
    assert recorded.collect().points == 0


@pytest.mark.feature("N14", "yes", "every timer is thread-safe")
def test_timers_in_threads_lose_nothing(recorded):
    def work() -> None:
        for _ in range(2000):
            with timed("t", span=False):
                pass

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert counts(recorded.collect(), "time/t") == {None: 8000}


def test_threads_that_use_the_same_timer_measure_each_their_own_time(recorded):
    set_step(1)
    first_began, second_began, first_stopped = (threading.Event() for _ in range(3))

    def first():
        timer("b", within="max").start()
        first_began.set()
        second_began.wait(10)
        timer("b").stop()
        first_stopped.set()

    def second():
        first_began.wait(10)
        time.sleep(0.1)  # what the first one measures
        timer("b").start()
        second_began.set()
        first_stopped.wait(10)
        time.sleep(0.1)  # what the second one measures
        timer("b").stop()

    threads = [threading.Thread(target=work) for work in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    [point] = points(recorded.collect(), "time/b")
    assert point.raw.count == 2
    assert point.raw.min >= 0.1


def test_tasks_that_use_the_same_timer_measure_each_their_own_time(recorded):
    async def both() -> None:
        first_began, second_began, first_stopped = (asyncio.Event() for _ in range(3))

        async def first() -> None:
            timer("b", within="max").start()
            first_began.set()
            await second_began.wait()
            timer("b").stop()
            first_stopped.set()

        async def second() -> None:
            await first_began.wait()
            await asyncio.sleep(0.1)  # what the first one measures
            timer("b").start()
            second_began.set()
            await first_stopped.wait()
            await asyncio.sleep(0.1)  # what the second one measures
            timer("b").stop()

        await asyncio.gather(first(), second())

    set_step(1)
    asyncio.run(both())

    [point] = points(recorded.collect(), "time/b")
    assert point.raw.count == 2
    assert point.raw.min >= 0.1


def test_a_timer_that_another_thread_started_can_be_stopped(recorded):
    set_step(1)
    thread = threading.Thread(target=timer("b").start)
    thread.start()
    thread.join()
    timer("b").stop()

    [point] = points(recorded.collect(), "time/b")
    assert point.raw.count == 1
    assert recorder.dropped == {}


def kinds_sent(batch):
    positions = [point.attributes for point in every_point(batch) if point.name == "otel_ml.position"]
    return [tuple(row) for one in positions for row in json.loads(one.get("ml.timers", "[]"))]


def test_what_a_timer_measures_is_declared_to_the_service_once(recorded):
    set_step(1)
    for _ in range(2):
        with timed("fetch", kind="wait"):
            pass
    timer("sync_weights", kind="work").start()
    first = recorded.collect()
    with timed("fetch", kind="wait"), timed("pull", kind="wait"):
        pass

    assert kinds_sent(first) == [("fetch", "wait"), ("sync_weights", "work")]
    assert counts(first, "time/fetch") == {1: 2}
    assert kinds_sent(recorded.collect(after_s=60)) == [("pull", "wait")]


def test_a_function_may_be_declared_to_wait(recorded):
    @timed("pull", kind="wait")
    def pull():
        return 3

    set_step(1)
    assert pull() == 3

    batch = recorded.collect()
    assert (kinds_sent(batch), counts(batch, "time/pull")) == ([("pull", "wait")], {1: 1})


@pytest.mark.parametrize("kind", ["waiting", 3, ["wait"]])
def test_a_kind_that_is_none_is_said_and_the_timer_measures(recorded, kind):
    said: list[str] = []
    reporter.connect(said.append)
    set_step(1)
    with timed("fetch", kind=kind):
        pass

    batch = recorded.collect()
    assert (kinds_sent(batch), counts(batch, "time/fetch")) == ([], {1: 1})
    assert len(said) == 1
    assert "expected kind 'work', 'wait' or None" in said[0]


def test_the_first_kind_of_a_timer_counts_and_another_one_is_said(recorded):
    said: list[str] = []
    reporter.connect(said.append)
    set_step(1)
    with timed("fetch", kind="wait"), timed("fetch", kind="work"):
        pass

    assert kinds_sent(recorded.collect()) == [("fetch", "wait")]
    assert len(said) == 1
    assert "is of kind 'wait' in this process" in said[0]
