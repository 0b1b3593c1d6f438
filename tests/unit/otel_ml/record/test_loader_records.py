"""What a loader records while `steps()` waits for it: it belongs to the step that it loads for."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress

import pytest

from otel_ml._internal.record.log import log
from otel_ml._internal.steps.step import set_step
from otel_ml._internal.timers.step_loop import steps
from otel_ml._internal.timers.timing import timed
from tests.unit.otel_ml.record.decoded import counts, manifests, plain, points, spans, sums


def test_what_a_loader_records_belongs_to_the_step_it_loads_for(recorded):
    def loader():
        for number in range(3):
            with timed("read"):
                log({"samples": float(number)})
            log({"named": float(number)}, axis="step")
            yield number

    for _ in range(2):
        for _ in steps(loader()):
            log({"loss": 1.0})

    batch = recorded.collect()
    samples = {step: total for (name, step), total in sums(batch).items() if name == "samples"}
    assert samples == {step: float(step % 3) for step in range(6)}
    assert counts(batch, "named") == counts(batch, "time/read") == counts(batch, "loss") == dict.fromkeys(range(6), 1)


def test_what_an_async_loader_records_belongs_to_the_step_it_loads_for(recorded):
    async def loader():
        for number in range(3):
            await asyncio.sleep(0)
            log({"samples": float(number)})
            yield number

    async def train():
        async for _ in steps(loader(), start=5):
            log({"loss": 1.0})

    asyncio.run(train())
    batch = recorded.collect()
    assert sums(batch)["samples", 5] == 0.0
    assert counts(batch, "samples") == counts(batch, "loss") == {5: 1, 6: 1, 7: 1}


def test_a_loop_beside_another_axis_records_what_its_loader_says_of_that_axis_at_its_own_step(recorded):
    def loader():
        for number in range(2):
            log({"samples": 1.0}, axis="eval")
            log({"seen": 1.0})
            yield number

    for _ in steps(range(1), start=7):
        for _ in steps(loader(), axis="eval"):
            pass

    places = [(point.axis, point.step) for point in points(recorded.collect(), "samples")]
    assert sorted(places) == [("eval", 0), ("eval", 1)]
    assert counts(recorded.collect(), "seen") == {}


def reading(files):
    """A loader that learns only by reading that nothing is left, as most do; its timer is in the last fetch, too."""
    while True:
        with timed("read"):
            found = next(files, None)
        if found is None:
            log({"files": 1.0})
            return
        yield found


def test_what_is_recorded_when_a_loader_finds_that_nothing_is_left_belongs_to_the_last_step(recorded):
    for _ in steps(reading(iter("abc"))):
        pass
    log({"after": 1.0})
    for _ in steps(reading(iter("de"))):
        pass

    batch = recorded.collect(final=True)
    read = Counter([point.step for point in points(batch, "time/read") for _ in range(point.raw.count)])
    assert read == {0: 1, 1: 1, 2: 2, 3: 1, 4: 2}
    assert counts(batch, "files") == {2: 1, 4: 1}
    assert counts(batch, "after") == {2: 1}
    assert {step for _, step in manifests(batch)} == {0, 1, 2, 3, 4}
    read_in = [plain(span.attributes)["ml.step"] for span in spans(batch) if span.name == "read"]
    assert sorted(read_in) == [0, 1, 2, 2, 3, 4, 4]


def test_what_a_loader_records_that_has_nothing_belongs_to_no_step_until_there_is_one(recorded):
    assert list(steps(reading(iter("")))) == []
    log({"after": 1.0})

    assert [point.step for point in points(recorded.collect(), "files")] == [None]


def test_a_value_for_the_next_step_stays_there_when_no_item_comes(recorded):
    for _ in steps("ab"):
        log({"plan": 1.0}, step=2)
        log({"loss": 1.0})

    batch = recorded.collect()
    assert [point.step for point in points(batch, "plan")] == [2, 2]
    assert counts(batch, "loss") == {0: 1, 1: 1}


def test_a_loader_that_fails_leaves_its_step_to_the_next_loop(recorded):
    def broken():
        yield 1
        log({"tries": 1.0})
        raise OSError("disk")

    for _ in range(2):
        with suppress(OSError):
            for _ in steps(broken()):
                log({"loss": 1.0})

    batch = recorded.collect()
    assert counts(batch, "loss") == counts(batch, "tries") == {0: 1, 1: 1}


@pytest.mark.parametrize("enter", ["steps", "set_step"])
def test_a_loader_that_counts_on_an_axis_of_its_own_records_each_item_at_the_step_it_loads_for(recorded, enter):
    def shards():
        if enter == "steps":
            yield from steps(range(3), axis="shard")
            return
        for number in range(3):
            set_step(number, axis="shard")
            yield number

    def loader():
        for number in shards():
            with timed("read"):
                log({"samples": float(number)})
            log({"sharded": 1.0}, axis="shard")
            yield number

    for _ in steps(loader()):
        log({"loss": 1.0})
    log({"after": 1.0})

    batch = recorded.collect(final=True)
    for name in ("samples", "time/read", "loss"):
        assert [(point.axis, point.step) for point in points(batch, name)] == [("step", 0), ("step", 1), ("step", 2)]
    assert [(point.axis, point.step) for point in points(batch, "sharded")] == [
        ("shard", number) for number in range(3)
    ]
    assert counts(batch, "after") == {2: 1}
