"""`steps(loader)`: whose step it is, and what is measured."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections import Counter
from contextlib import suppress

import numpy as np
import pytest
from tqdm import tqdm

from otel_ml._internal.error_reporting import reporter
from otel_ml._internal.messages.recorder import recorder
from otel_ml._internal.record.log import log
from otel_ml._internal.steps.stage import Stage
from otel_ml._internal.steps.step import set_step, step
from otel_ml._internal.timers.step_loop import steps
from otel_ml._internal.timers.timing import timed
from tests.unit.otel_ml.record.decoded import counts, manifests, plain, points, spans, sums


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


@pytest.mark.parametrize(
    "counting",
    [
        range(60, 63),
        [60, 61, 62],
        (60, 61, 62),
        np.arange(60, 63),
        tqdm(range(60, 63), disable=True),
        tqdm(enumerate("abc", 60), disable=True),
    ],
    ids=["range", "list", "tuple", "numpy", "tqdm of range", "tqdm of enumerate"],
)
def test_what_counts_from_further_on_says_itself_which_step_it_is(recorded, counting):
    for _ in steps(counting):
        log({"x": 1.0})

    assert counts(recorded.collect(), "x") == {60: 1, 61: 1, 62: 1}


def test_what_is_numbered_or_counted_without_an_end_says_which_step_it_is(recorded):
    for _ in steps(enumerate("ab", 60)):
        log({"x": 1.0})
    for number in steps(itertools.count(70)):
        log({"x": 1.0})
        if number == 71:
            break

    assert counts(recorded.collect(), "x") == {60: 1, 61: 1, 70: 1, 71: 1}


def test_a_second_epoch_that_counts_from_one_again_follows_the_first(recorded):
    for _ in range(2):
        for _ in steps(range(1, 4)):
            log({"x": 1.0})

    assert counts(recorded.collect(), "x") == dict.fromkeys(range(1, 7), 1)


def test_start_says_more_than_what_is_counted(recorded):
    for _ in steps(range(60, 62), start=7):
        log({"x": 1.0})

    assert counts(recorded.collect(), "x") == {7: 1, 8: 1}


@pytest.mark.parametrize("data", [[5, 3, 9], range(60, 90, 10), [60, 61.0], [True, False], "ab", [], range(0)])
def test_whole_numbers_that_do_not_count_are_not_the_step(recorded, data):
    for _ in steps(data):
        log({"x": 1.0})

    assert list(counts(recorded.collect(), "x")) == list(range(len(data)))


@pytest.mark.parametrize("kind", [lambda: (n for n in range(60, 63)), lambda: zip(range(60, 63), "abc", strict=True)])
def test_numbers_that_look_like_steps_and_are_not_taken_are_said(recorded, kind):
    said: list[str] = []
    reporter.connect(said.append)
    for _ in steps(kind()):
        log({"x": 1.0})

    assert list(counts(recorded.collect(), "x")) == [0, 1, 2]
    [sentence] = said
    assert "yields 60, 61, …, and its steps are 0, 1, … If those numbers are the steps, pass start=60." in sentence


def test_a_loader_that_yields_whole_numbers_is_not_accused(recorded):
    said: list[str] = []
    reporter.connect(said.append)

    class Loader:
        def __iter__(self):
            return iter([17, 4, 255])

    for _ in steps(Loader()):
        log({"x": 1.0})

    assert list(counts(recorded.collect(), "x")) == [0, 1, 2]
    assert said == []


def test_a_baseline_at_step_0_leaves_the_loop_where_it_begins_on_ranks_without_one(recorded):
    log({"val/loss": 9.0}, step=0)
    for _ in range(2):
        for _ in steps("ab"):
            log({"loss": 1.0})

    batch = recorded.collect()
    assert counts(batch, "val/loss") == {0: 1}
    assert counts(batch, "loss") == {0: 1, 1: 1, 2: 1, 3: 1}


@pytest.mark.parametrize("place", [lambda: set_step(1000), lambda: log({"val/loss": 9.0}, step=1000)])
def test_a_loop_follows_the_step_from_which_a_job_goes_on(recorded, place):
    place()
    for _ in steps("ab"):
        log({"loss": 1.0})

    assert counts(recorded.collect(), "loss") == {1001: 1, 1002: 1}


@pytest.mark.parametrize("place", [lambda: set_step(60), lambda: log({"val/loss": 9.0}, step=60)])
def test_a_loop_that_says_the_step_the_program_is_at_begins_there(recorded, place):
    place()
    for _ in steps(range(60, 62)):
        log({"loss": 1.0})

    assert counts(recorded.collect(), "loss") == {60: 1, 61: 1}


def test_a_loop_of_one_step_that_is_done_once_more_is_the_next_step(recorded):
    for _ in range(2):
        for _ in steps(range(60, 61)):
            log({"loss": 1.0})

    assert counts(recorded.collect(), "loss") == {60: 1, 61: 1}


def test_that_what_a_generator_counts_is_one_less_than_its_steps_is_said(recorded):
    said: list[str] = []
    reporter.connect(said.append)
    log({"val/loss": 9.0}, step=60)
    for _ in steps(number for number in range(60, 63)):
        pass

    assert [line for line in said if "pass start=60" in line]


def test_a_loop_follows_step_0_where_the_program_was_in_it(recorded):
    set_step(0)
    for _ in steps("ab"):
        log({"loss": 1.0})

    assert counts(recorded.collect(), "loss") == {1: 1, 2: 1}


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


@pytest.mark.parametrize("is_collected", [False, True])
def test_that_a_baseline_has_a_name_of_the_first_step_is_said_once(recorded, is_collected):
    said: list[str] = []
    reporter.connect(said.append)
    log({"loss": 9.0, "val/acc": 0.1}, step=0)
    log({"val/acc": 0.2}, step=0)
    if is_collected:
        recorded.collect()
    for _ in steps("abc"):
        log({"loss": 1.0})

    batch = recorded.collect(final=True)
    assert manifests(batch)["step", 0] == 6
    assert len(said) == 1
    assert "'loss'" in said[0]
    assert "'val/acc'" not in said[0]


def test_a_baseline_with_names_of_its_own_is_not_accused(recorded):
    said: list[str] = []
    reporter.connect(said.append)
    log({"val/acc": 0.1}, step=0)
    for _ in steps(reading(iter("a"))):
        log({"loss": 1.0})
    recorded.collect(final=True)

    assert said == []


def test_several_records_of_a_first_step_without_a_baseline_are_not_accused(recorded):
    said: list[str] = []
    reporter.connect(said.append)
    log({"loss": 1.0}, step=0)
    recorded.collect()
    set_step(0)
    log({"loss": 1.0})
    recorded.collect(final=True)

    assert said == []


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


def evaluated(batch):
    """Return how many batches of `evaluate()` are at each step."""
    return Counter(point.step for point in points(batch, "eval/acc"))


def evaluate(batches):
    with Stage("eval"):
        for _ in steps(batches):
            log({"acc": 1.0})


def test_a_loop_in_a_stage_after_training_counts_nothing_and_training_goes_on_where_it_was(recorded):
    said: list[str] = []
    reporter.connect(said.append)
    for _ in range(2):
        for _ in steps("abc"):
            log({"loss": 1.0})
        evaluate("de")

    batch = recorded.collect()
    assert counts(batch, "loss") == dict.fromkeys(range(6), 1)
    assert evaluated(batch) == {2: 2, 5: 2}
    assert counts(batch, "time/step") == dict.fromkeys(range(6), 1)
    assert [sentence for sentence in said if "stage 'eval'" in sentence] == said[:1] == said


@pytest.mark.parametrize("train", [lambda: set_step(7), lambda: log({"loss": 1.0}, step=7)])
def test_a_loop_in_a_stage_leaves_the_step_that_the_program_said(recorded, train):
    train()
    evaluate("de")
    log({"lr": 1.0})

    batch = recorded.collect()
    assert evaluated(batch) == {7: 2}
    assert counts(batch, "lr") == {7: 1}


def test_an_async_loop_in_a_stage_counts_nothing_either(recorded):
    async def loader():
        yield 1
        yield 2

    async def validate():
        with Stage("eval"):
            async for _ in steps(loader()):
                log({"acc": 1.0})

    set_step(7)
    asyncio.run(validate())

    assert evaluated(recorded.collect()) == {7: 2}


def test_a_loop_in_a_stage_that_records_nothing_moves_no_step(recorded):
    with Stage(None):
        for _ in steps("ab"):
            log({"acc": 1.0})
    for _ in steps("cd"):
        log({"loss": 1.0})

    assert counts(recorded.collect(), "loss") == {0: 1, 1: 1}


def test_a_program_that_only_evaluates_counts_the_steps_of_each_loop(recorded):
    evaluate("ab")
    evaluate("cd")
    with Stage("test"):
        for _ in steps("e", axis="batch"):
            log({"acc": 1.0}, axis="batch")

    batch = recorded.collect()
    assert counts(batch, "eval/acc") == dict.fromkeys(range(4), 1)
    assert [(point.axis, point.step) for point in points(batch, "acc")] == [("batch", 0)]


def test_that_a_loop_begins_after_those_of_a_stage_is_said_once(recorded):
    said: list[str] = []
    reporter.connect(said.append)
    evaluate("ab")
    for _ in range(2):
        for _ in steps("cd"):
            log({"loss": 1.0})

    assert counts(recorded.collect(), "loss") == {2: 1, 3: 1, 4: 1, 5: 1}
    [sentence] = said
    assert "begins at step 2" in sentence
    assert "steps(…, axis='eval')" in sentence


@pytest.mark.parametrize("is_evaluated", [False, True], ids=["block", "loop"])
def test_what_a_stage_did_at_step_0_alone_is_a_baseline(recorded, is_evaluated):
    said: list[str] = []
    reporter.connect(said.append)
    if is_evaluated:
        evaluate("a")
    else:
        with Stage("eval"), step(0):
            log({"acc": 1.0})
    for _ in steps("cd"):
        log({"loss": 1.0})

    batch = recorded.collect()
    assert counts(batch, "eval/acc") == {0: 1}
    assert counts(batch, "loss") == {0: 1, 1: 1}
    assert said == []


def train_in_a_block():
    with step(0):
        log({"loss": 1.0})


@pytest.mark.parametrize("enter", [lambda: set_step(0), train_in_a_block, lambda: [*steps("t")]])
def test_a_step_0_that_was_trained_in_after_a_baseline_in_a_stage_is_done(recorded, enter):
    with Stage("eval"), step(0):
        log({"acc": 1.0})
    enter()
    for _ in steps("cd"):
        pass

    assert sorted(counts(recorded.collect(), "time/step"))[-2:] == [1, 2]


@pytest.mark.parametrize("block", [lambda: step(0), lambda: step(np.int64(0))])
def test_that_a_loop_follows_a_block_at_step_0_is_said_once(recorded, block):
    said: list[str] = []
    reporter.connect(said.append)
    with block():
        log({"val/loss": 9.0})
    for _ in range(2):
        for _ in steps("ab"):
            log({"loss": 1.0})

    assert counts(recorded.collect(), "loss") == {1: 1, 2: 1, 3: 1, 4: 1}
    [sentence] = said
    assert "begins at step 1" in sentence
    assert "start=0" in sentence


@pytest.mark.parametrize("loop", [lambda: steps("ab", start=0), lambda: steps(range(1, 3))])
def test_a_loop_that_says_where_it_begins_after_a_block_is_not_accused(recorded, loop):
    said: list[str] = []
    reporter.connect(said.append)
    with step(0):
        log({"val/loss": 9.0})
    for _ in loop():
        pass

    assert said == []
