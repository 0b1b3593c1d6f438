"""`steps(loader)`: whose step it is, and what is measured."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import suppress

import pytest

from otel_ml._internal.error_reporting import reporter
from otel_ml._internal.messages.recorder import recorder
from otel_ml._internal.record.log import log
from otel_ml._internal.steps.current import current_step
from otel_ml._internal.steps.step import set_step
from otel_ml._internal.timers.step_loop import steps
from tests.unit.otel_ml.record.decoded import counts, manifests, points, sums
from tests.waiting import eventually


def test_steps_sets_and_ends_the_steps_of_a_loop(recorded):
    seen = []
    for batch in steps(["a", "b", "c"]):
        log({"x": 1.0})
        seen.append(batch)
    log({"after": 1.0})

    batch = recorded.collect()
    assert seen == ["a", "b", "c"]
    assert counts(batch, "x") == {0: 1, 1: 1, 2: 1}
    assert counts(batch, "time/step") == {0: 1, 1: 1, 2: 1}
    assert counts(batch, "time/data") == {0: 1, 1: 1, 2: 1}
    assert counts(batch, "after") == {2: 1}


@pytest.mark.feature("M32", "yes", "`steps(loader, start=step)`")
def test_a_second_loop_goes_on_counting_and_start_continues_a_run(recorded):
    for epoch in range(2):
        for _ in steps(range(2)):
            log({"epoch": float(epoch)})
    for _ in steps(range(1), start=100):
        log({"epoch": 2.0})

    assert {step for _, step in sums(recorded.collect())} == {0, 1, 2, 3, 100}


def test_after_an_inner_loop_values_are_of_the_outer_loops_step(recorded):
    for epoch in steps(range(2), axis="epoch"):
        for _ in steps(range(3)):
            log({"loss": 1.0})
        log({"val": float(epoch)})
    log({"after": 1.0})

    batch = recorded.collect()
    assert counts(batch, "loss") == dict.fromkeys(range(6), 1)
    assert sums(batch)["val", 0] == 0.0
    assert sums(batch)["val", 1] == 1.0
    assert counts(batch, "after") == {5: 1}


def test_a_validation_loop_inside_of_a_training_loop_is_in_the_training_loops_step(recorded):
    said = []
    reporter.connect(said.append)
    for epoch in steps(range(3)):
        log({"loss": float(epoch)})
        for _ in steps(range(4)):
            log({"val": float(epoch)})
        log({"after": float(epoch)})

    batch = recorded.collect()
    assert counts(batch, "loss") == counts(batch, "after") == {0: 1, 1: 1, 2: 1}
    assert {step: total for (name, step), total in sums(batch).items() if name == "val"} == {0: 0.0, 1: 4.0, 2: 8.0}
    assert counts(batch, "time/step") == {0: 1, 1: 1, 2: 1}
    assert counts(batch, "time/data") == {0: 1, 1: 1, 2: 1}
    assert [sentence[:53] for sentence in said] == ["steps() inside of steps() on axis 'step': the step st"]


async def _one_after_the_other(loops: int) -> None:
    async def elements():
        for number in range(2):
            yield number

    for _ in range(loops):
        async for _ in steps(elements()):
            log({"loss": 1.0})
            break
    async for _ in steps(elements()):
        async for _ in steps(elements()):
            log({"val": 1.0})


def test_async_loops_are_inside_of_each_other_only_where_they_are(recorded):
    asyncio.run(_one_after_the_other(3))

    batch = recorded.collect()
    assert counts(batch, "loss") == {0: 1, 1: 1, 2: 1}
    assert {step: total for (name, step), total in sums(batch).items() if name == "val"} == {3: 2.0, 4: 2.0}


def test_loops_of_threads_a_loop_that_was_given_up_and_one_that_failed_are_around_no_other(recorded):
    def worker() -> None:
        for _ in steps(range(2), axis="samples"):
            log({"sample": 1.0}, axis="samples")

    said = []
    reporter.connect(said.append)
    for _ in steps(range(1), axis="samples"):
        thread = threading.Thread(target=worker)
        thread.start()
        thread.join()
    given_up = iter(steps(range(5)))
    next(given_up)
    given_up.close()
    with suppress(ZeroDivisionError):
        for _ in steps(range(5)):
            raise ZeroDivisionError
    for _ in steps(range(2)):
        log({"loss": 1.0})

    batch = recorded.collect()
    assert counts(batch, "loss") == {2: 1, 3: 1}
    assert counts(batch, "sample") == {1: 1, 2: 1}
    assert said == []


def test_the_time_of_an_inner_loop_on_an_axis_of_its_own_is_not_added_to_the_outer_loops(recorded):
    for _ in steps(range(1)):
        for _ in steps(range(3), axis="eval"):
            time.sleep(0.001)  # a validation step

    times = [(point.axis, point.step, point.raw.count) for point in points(recorded.collect(), "time/step")]
    assert sorted(times) == [("eval", 0, 1), ("eval", 1, 1), ("eval", 2, 1), ("step", 0, 1)]


def test_after_a_loop_the_axis_that_was_set_last_says_which_step_it_is(recorded):
    set_step(7, axis="rollout")
    set_step(8, axis="policy_version")
    set_step(9, axis="rollout")
    for _ in steps(range(2), axis="eval"):
        pass
    log({"rollout": 1.0})
    set_step(3)
    for _ in steps(range(2), axis="eval"):
        pass
    log({"train": 1.0})

    batch = recorded.collect()
    assert counts(batch, "rollout") == {9: 1}
    assert counts(batch, "train") == {3: 1}


def test_the_wait_for_data_is_measured_at_the_step_it_is_for(recorded):
    def slow():
        for i in range(2):
            time.sleep(0.02)  # the wait that is measured
            yield i

    for _ in steps(slow()):
        pass

    totals = sums(recorded.collect())
    for i in range(2):
        assert totals["time/data", i] >= 0.02
        assert totals["time/step", i] >= totals["time/data", i]


def test_leaving_a_loop_early_ends_its_step(recorded):
    for _ in steps(range(10)):
        log({"x": 1.0})
        break
    log({"after": 1.0})

    batch = recorded.collect()
    assert counts(batch, "time/step") == {0: 1}
    assert counts(batch, "after") == {0: 1}


async def _left_early(seen):
    async def loader():
        for item in range(3):
            await asyncio.sleep(0)
            yield item

    async for item in steps(loader()):
        if item == 1:
            break  # Python closes the loop's generator at the next `await` only
    async for _ in steps(loader()):
        await asyncio.sleep(0)
        seen.append(current_step())


def test_an_async_loop_that_was_left_early_ends_no_step_of_the_next_one(recorded):
    seen = []
    asyncio.run(_left_early(seen))

    assert seen == [2, 3, 4]
    assert current_step() is None


def test_a_loop_that_is_closed_late_ends_no_step_of_the_next_one(recorded):
    first = iter(steps(["a", "b"]))
    threading.Thread(target=next, args=(first,)).start()
    eventually(lambda: current_step() == 0)
    for item in steps(["c", "d"]):
        if item == "c":
            first.close()  # as the garbage collector does, whenever it comes to it
        log({"x": 1.0})
        assert current_step() is not None
    log({"after": 1.0})

    batch = recorded.collect()
    assert counts(batch, "x") == {1: 1, 2: 1}
    assert current_step() is None


def test_steps_of_an_async_loop_are_those_of_a_loop(recorded):
    async def loader():
        for batch in "abc":
            await asyncio.sleep(0)
            yield batch

    async def train():
        seen = []
        async for batch in steps(loader(), start=5):
            await asyncio.sleep(0)
            log({"x": 1.0})
            seen.append(batch)
        log({"after": 1.0})
        return seen

    assert asyncio.run(train()) == ["a", "b", "c"]
    batch = recorded.collect()
    assert counts(batch, "x") == {5: 1, 6: 1, 7: 1}
    assert counts(batch, "time/step") == {5: 1, 6: 1, 7: 1}
    assert counts(batch, "time/data") == {5: 1, 6: 1, 7: 1}
    assert counts(batch, "after") == {7: 1}


def test_an_async_loop_is_passed_through_while_recording_is_off(recorded):
    async def loader():
        yield 1
        yield 2

    async def train():
        return [item async for item in steps(loader())]

    recorder.enabled = False
    assert asyncio.run(train()) == [1, 2]


def test_a_sequence_of_the_old_protocol_is_a_loader_and_the_wrong_kind_of_loop_an_error(recorded):
    class Dataset:
        def __getitem__(self, index):
            return "ab"[index]

    async def loader():
        yield 1

    async def train():
        return [item async for item in steps([1])]

    assert list(steps(Dataset())) == ["a", "b"]
    with pytest.raises(TypeError, match="'async_generator' object is not iterable"):
        list(steps(loader()))
    with pytest.raises(TypeError, match="'list' object is not an async iterable"):
        asyncio.run(train())


def test_steps_is_as_long_as_its_loader_and_lets_its_exceptions_through(recorded):
    def broken():
        yield 1
        raise OSError("disk")

    assert len(steps([1, 2, 3])) == 3
    with pytest.raises(OSError, match="disk"):
        list(steps(broken()))


def test_the_step_before_is_open_while_the_next_item_is_fetched(recorded):
    """So a rank whose loader hangs is behind the others, and is named."""
    seen = []

    def loader():
        yield 0
        seen.append((manifests(recorded.collect(after_s=1)), recorder.current_steps()))
        yield 1

    for _ in steps(loader()):
        log({"loss": 1.0})

    assert seen == [({}, {"step": 0})]
