from __future__ import annotations

import asyncio
import threading
import time

import pytest

from otel_ml._internal.definition import define_metric
from otel_ml._internal.guard import guard
from otel_ml._internal.log import log
from otel_ml._internal.loop import steps
from otel_ml._internal.recorder import recorder
from otel_ml._internal.step import set_step, step
from otel_ml._internal.timing import timed, timer
from tests.unit.otel_ml.record.decoded import points, spans, sums


def counts(batch, name):
    return {point.step: point.raw.count for point in points(batch, name)}


def test_a_block_is_a_metric_in_seconds_and_the_slowest_rank_counts(recorded):
    set_step(1)
    begin = time.perf_counter()
    with timed("forward"):
        time.sleep(0.01)
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


@pytest.mark.parametrize("decorate", [timed, timed("work"), timed(level=1)], ids=["bare", "named", "options"])
def test_a_function_is_timed_and_keeps_its_name_and_result(recorded, decorate):
    @decorate
    def work(a: int, *, b: int) -> int:
        """Add."""
        return a + b

    assert work(1, b=2) == 3
    assert (work.__name__, work.__doc__) == ("work", "Add.")
    (point,) = points(recorded.collect())
    assert point.name.startswith("time/")
    assert point.name.endswith("work")


def test_methods_of_every_kind_are_timed_under_their_qualified_name(recorded):
    class Trainer:
        @timed
        def plain(self) -> str:
            return "plain"

        @timed
        @classmethod
        def of_class(cls) -> str:
            return cls.__name__

        @timed
        @staticmethod
        def static() -> str:
            return "static"

        @property
        @timed
        def value(self) -> str:
            return "value"

    trainer = Trainer()
    assert (trainer.plain(), trainer.of_class(), Trainer.static(), trainer.value) == (
        "plain", "Trainer", "static", "value",
    )  # fmt: skip
    names = {point.name.rpartition("Trainer.")[2] for point in points(recorded.collect())}
    assert {"plain", "static", "value"} <= names
    assert len(names) == 4


def test_recursion_measures_every_call(recorded):
    @timed("fib")
    def fib(n: int) -> int:
        return n if n < 2 else fib(n - 1) + fib(n - 2)

    assert fib(5) == 5
    assert counts(recorded.collect(), "time/fib") == {None: 15}


def test_a_coroutine_is_timed_with_its_waits(recorded):
    @timed("fetch")
    async def fetch(x: int) -> int:
        await asyncio.sleep(0.01)
        return x

    async def job() -> list[int]:
        return await asyncio.gather(*(fetch(i) for i in range(5)))

    assert asyncio.run(job()) == [0, 1, 2, 3, 4]
    (point,) = points(recorded.collect())
    assert point.raw.count == 5
    assert point.raw.sum >= 0.05


def test_a_generator_is_timed_while_it_runs_and_each_resumption_at_its_own_step(recorded):
    @timed("produce")
    def produce():
        received = []
        for i in range(3):
            received.append((yield i))  # noqa: PERF401 - what is sent in
        return received

    def consume():
        return (yield from produce())

    seen = []
    generator = consume()
    set_step(0)
    seen.append(next(generator))
    for i in (1, 2):
        set_step(i)
        seen.append(generator.send(f"s{i}"))
        time.sleep(0.05)
    with pytest.raises(StopIteration) as stop:
        generator.send("end")

    assert seen == [0, 1, 2]
    assert stop.value.value == ["s1", "s2", "end"]
    batch = recorded.collect()
    assert counts(batch, "time/produce") == {0: 1, 1: 1, 2: 2}
    assert sum(sums(batch).values()) < 0.05, "the caller's time is not the generator's"


def test_a_generator_sees_exceptions_and_is_closed(recorded):
    events = []

    @timed("g")
    def generate():
        try:
            yield 1
        except KeyError as error:
            events.append(error)
            yield 2
        finally:
            events.append("closed")

    generator = generate()
    next(generator)
    assert generator.throw(KeyError("k")) == 2
    generator.close()

    assert [type(event).__name__ for event in events] == ["KeyError", "str"]


def test_an_async_generator_is_timed_and_closed(recorded):
    closed = []

    @timed("stream")
    async def stream():
        try:
            for i in range(10):
                await asyncio.sleep(0)
                yield i
        finally:
            closed.append(True)

    async def job():
        seen = []
        generator = stream()
        async for i in generator:
            seen.append(i)
            if i == 3:
                break
        await generator.aclose()
        return seen

    assert asyncio.run(job()) == [0, 1, 2, 3]
    assert closed == [True]
    assert counts(recorded.collect(), "time/stream") == {None: 4}


def test_one_with_object_may_be_entered_by_many_tasks_and_inside_itself(recorded):
    shared = timed("shared")

    async def task(i: int) -> None:
        with step(i), shared:
            await asyncio.sleep(0.001 * (5 - i))
            with shared:
                await asyncio.sleep(0)

    async def job() -> None:
        await asyncio.gather(*(task(i) for i in range(5)))

    asyncio.run(job())
    with shared:
        pass

    assert counts(recorded.collect(), "time/shared") == {**dict.fromkeys(range(5), 2), None: 1}


def test_exceptions_pass_through_and_the_time_is_still_recorded(recorded):
    with pytest.raises(ZeroDivisionError), timed("broken"):
        _ = 1 / 0

    batch = recorded.collect()
    assert counts(batch, "time/broken") == {None: 1}
    (span,) = spans(batch)
    assert span.status.code == 2
    assert "ZeroDivisionError" in span.status.message


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


def test_a_timer_above_the_level_still_decorates(recorded):
    @timed("f", level=3)
    async def f() -> int:
        return 5

    assert asyncio.run(f()) == 5


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


def test_the_reduction_of_a_timer_is_the_users_choice(recorded):
    define_metric("time/defined", reduce="mean", within="sum")
    with timed("defined"), timed("chosen", reduce=("mean", "max")):
        pass

    found = {point.name: point.reduction for point in points(recorded.collect())}
    assert found == {"time/defined": "sum>mean", "time/chosen": "sum>mean,max"}


def test_a_stop_without_start_is_said_and_harmless(recorded):
    said: list[str] = []
    guard.connect(said.append)
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
    assert counts(batch, "after") == {None: 1}


def test_a_second_loop_goes_on_counting_and_start_continues_a_run(recorded):
    for epoch in range(2):
        for _ in steps(range(2)):
            log({"epoch": float(epoch)})
    for _ in steps(range(1), start=100):
        log({"epoch": 2.0})

    assert {step for _, step in sums(recorded.collect())} == {0, 1, 2, 3, 100}


def test_the_wait_for_data_is_measured_at_the_step_it_is_for(recorded):
    def slow():
        for i in range(2):
            time.sleep(0.02)
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
    assert counts(batch, "after") == {None: 1}


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
    assert counts(batch, "after") == {None: 1}


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
