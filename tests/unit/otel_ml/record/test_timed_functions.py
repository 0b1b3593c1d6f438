"""`timed` on functions of every kind: the name, the result and every call's time are right."""

from __future__ import annotations

import asyncio
import time

import pytest

from otel_ml._internal.steps.step import set_step
from otel_ml._internal.timers.timing import timed
from tests.unit.otel_ml.record.decoded import counts, points, spans, sums


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
        await asyncio.sleep(0.01)  # what is measured
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
    begin, of_the_caller = time.perf_counter(), 0.0
    set_step(0)
    seen.append(next(generator))
    for i in (1, 2):
        set_step(i)
        seen.append(generator.send(f"s{i}"))
        left = time.perf_counter()
        time.sleep(0.05)  # the caller's time, which is not the generator's
        of_the_caller += time.perf_counter() - left
    with pytest.raises(StopIteration) as stop:
        generator.send("end")
    elapsed = time.perf_counter() - begin

    assert seen == [0, 1, 2]
    assert stop.value.value == ["s1", "s2", "end"]
    batch = recorded.collect()
    assert counts(batch, "time/produce") == {0: 1, 1: 1, 2: 2}
    assert sum(sums(batch).values()) < elapsed - of_the_caller, "the caller's time is not the generator's"


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


@timed("produce")
def produce():
    yield from range(3)


@timed("produce")
async def produce_async():
    for i in range(3):
        yield i


async def all_of(generator):
    return [item async for item in generator]


@pytest.mark.parametrize("consume", [lambda: list(produce()), lambda: asyncio.run(all_of(produce_async()))])
def test_that_a_generator_comes_to_its_end_is_not_an_error_of_its_span(recorded, consume):
    assert consume() == [0, 1, 2]

    found = spans(recorded.collect())
    assert [span.status.code for span in found] == [0] * 4


def test_a_timer_above_the_level_still_decorates(recorded):
    @timed("f", level=3)
    async def f() -> int:
        return 5

    assert asyncio.run(f()) == 5
