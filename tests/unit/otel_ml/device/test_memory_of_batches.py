"""The memory that batches of device values need: how much, whose, and what happens without it."""

from __future__ import annotations

import gc
import os
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from otel_ml._internal.devices import non_blocking_copy, pinned_memory, stream_buffer
from otel_ml._internal.messages.recorder import recorder
from otel_ml._internal.record.log import log, record
from otel_ml._internal.record.meter import get_meter
from otel_ml._internal.steps.step import set_step
from tests.fake_cuda import FakeCuda
from tests.unit.otel_ml.device.batch_of_values import FIFTY, by_step, values


class HandsOutNoMemory(TorchDispatchMode):
    """Stands for `FakeTensorMode` and others: what is made within has no values."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        return made.to("meta") if func.overloadpacket.__name__ == "empty" else made


def test_memory_is_real_whatever_mode_of_the_program_was_there_when_it_was_made(recorded, cuda: FakeCuda) -> None:
    x = cuda.tensor(2.0)
    set_step(0)
    with HandsOutNoMemory():
        log({"within": x})
    log({"after": x})

    assert values(recorded.collect(final=True)) == {"within": 2.0, "after": 2.0}
    assert recorder.dropped == {}


class ForbidsCopies(TorchDispatchMode):
    """Stands for a mode of the program that has no use for our operations."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if "copy" in func.overloadpacket.__name__:
            raise RuntimeError("Please convert all Tensors to FakeTensors first")
        return func(*args, **(kwargs or {}))


def test_a_mode_of_the_program_costs_neither_its_own_values_nor_those_of_before(
    recorded, cuda: FakeCuda, monkeypatch
) -> None:
    monkeypatch.setattr(stream_buffer, "_SHORTEST_S", 0.0)  # a batch goes at once
    x, y = cuda.tensor(2.0), cuda.tensor(3.0)
    set_step(0)
    log({"x": x, "y": y})
    set_step(1)
    with ForbidsCopies():
        log({"x": x, "y": y})
        record("z", x)
    set_step(2)
    log({"x": x, "y": y})

    batch = recorded.collect(final=True)
    assert by_step(batch, "x") == dict.fromkeys(range(3), 2.0)
    assert by_step(batch, "y") == dict.fromkeys(range(3), 3.0)
    assert by_step(batch, "z") == {1: 2.0}
    assert recorder.dropped == {}


def test_no_memory_that_stays_is_of_a_graph_that_an_old_torch_warms_up(recorded, cuda: FakeCuda, monkeypatch) -> None:
    monkeypatch.delattr(torch.Tag, "cudagraph_unsafe")
    x = cuda.tensor(2.0)
    warming_up = torch.cuda.Stream()
    set_step(0)
    with torch.cuda.stream(warming_up):
        log({"x": x})

    assert values(recorded.collect(final=True)) == {"x": 2.0}
    assert cuda.allocated_on[warming_up] == 0


def test_a_forked_child_frees_nothing_of_its_parent_and_begins_with_nothing(
    recorded, cuda: FakeCuda, monkeypatch
) -> None:
    record("parents", cuda.tensor(1.0))
    held = cuda.allocated
    parent = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: parent + 1)  # the fork itself: torch's own threads would not survive it
    non_blocking_copy.STAGING.forget()
    gc.collect()
    assert cuda.allocated == held
    with cuda.counted() as asked:
        non_blocking_copy.STAGING.look(everything=True)
    assert asked == {}


def test_memory_is_a_buffer_a_stream_and_as_many_blocks_as_are_under_way(recorded, cuda: FakeCuda) -> None:
    scalars = {f"m{i}": cuda.tensor(float(i)) for i in FIFTY}
    log(scalars)
    recorded.collect(final=True)
    with cuda.counted() as more:
        held = cuda.allocated
        for step in range(300):
            set_step(step)
            log(scalars)
            recorded.collect()
    assert cuda.allocated == held
    assert more["pinned"] == more["events made"] == 0


def test_without_pinned_memory_values_wait_on_the_device_and_come_when_there_is_some(
    recorded, cuda: FakeCuda, monkeypatch
) -> None:
    monkeypatch.setattr(pinned_memory, "_AGAIN_S", 0.0)  # asked again at once
    cuda.pinned_left = 0
    for step in range(3):
        set_step(step)
        record("x", cuda.tensor(float(step)))
        recorded.collect()
    assert recorder.recorded == 0
    cuda.pinned_left = None
    assert by_step(recorded.collect(final=True), "x") == {0: 0.0, 1: 1.0, 2: 2.0}
    assert recorder.dropped == {}


def test_pinned_memory_does_not_grow_beyond_its_bound_and_nothing_is_lost_by_it(
    recorded, cuda: FakeCuda, monkeypatch
) -> None:
    monkeypatch.setattr(pinned_memory.PinnedPool, "MOST", 32)
    monkeypatch.setattr(stream_buffer, "_SHORTEST_S", 0.0)  # a batch goes at once
    cuda.stream.hold()
    for step in range(50):
        set_step(step)
        record("x", cuda.tensor(float(step)))
        recorded.collect()
    assert cuda.counts["pinned"] == 1
    assert cuda.counts["events made"] == 32
    cuda.stream.release()
    assert by_step(recorded.collect(final=True), "x") == {step: float(step) for step in range(50)}


def test_where_all_memory_is_in_use_the_newest_values_are_counted(recorded, cuda: FakeCuda) -> None:
    cuda.pinned_left = 0
    metric, one = get_meter("train").metric("x"), cuda.tensor(1.0)
    for _ in range(pinned_memory.SIZE + 5):
        metric.record(one)
    assert recorder.dropped == {"device_backlog": 5}


def test_without_memory_of_the_device_a_value_is_counted_and_training_goes_on(recorded, cuda: FakeCuda) -> None:
    one = cuda.tensor(1.0)
    cuda.device_left = 0
    log({"x": one, "host": 1.0})
    cuda.device_left = None
    assert values(recorded.collect(final=True)) == {"host": 1.0}
    assert recorder.dropped == {"device_error": 1}
