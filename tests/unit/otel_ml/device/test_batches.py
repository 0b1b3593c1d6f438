"""Values on a CUDA device: one batch a step, exact, as they were at the call, and nobody waits for them."""

from __future__ import annotations

import gc
import math
import os
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from otel_ml._internal.devices import device_batch, gather, pinned_memory, stream_buffer
from otel_ml._internal.lifecycle.isolation import isolated
from otel_ml._internal.messages.recorder import recorder
from otel_ml._internal.record.log import log, record
from otel_ml._internal.record.meter import get_meter
from otel_ml._internal.series.definition import define_metric
from otel_ml._internal.steps.step import set_step
from tests.fake_cuda import FakeCuda, fake_cuda
from tests.unit.otel_ml.record.decoded import points
from tests.waiting import eventually

FIFTY = range(50)


def values(batch: Any) -> dict[str, float]:
    """Return the mean of each name in a batch, in whatever step."""
    return {point.name: point.moments[1] / point.moments[0] for point in points(batch)}


def by_step(batch: Any, name: str) -> dict[int | None, float]:
    return {point.step: point.moments[1] / point.moments[0] for point in points(batch, name)}


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Send no batch because it is old: how fast the test runs must not matter."""
    monkeypatch.setattr(stream_buffer, "_SHORTEST_S", math.inf)  # a batch is never too old
    monkeypatch.setattr(stream_buffer, "_LONGEST_S", math.inf)  # a batch is never too old


@pytest.mark.usefixtures("unhurried")
def test_the_values_of_one_call_are_one_launch_and_of_one_step_one_copy_and_one_event(recorded, cuda: FakeCuda) -> None:
    scalars = {f"m{i}": cuda.tensor(float(i)) for i in FIFTY}
    set_step(0)
    log(scalars)
    set_step(1)
    with cuda.counted() as call:
        log(scalars)
    with cuda.counted() as rest:
        found = values(recorded.collect(final=True))

    assert found == {f"m{i}": float(i) for i in FIFTY}
    assert call["operations"] <= 4
    assert call["launches"] == 1
    assert (rest["launches"], rest["events recorded"], rest["copies"]) == (1, 1, 1)


@pytest.mark.usefixtures("unhurried")
def test_a_step_that_is_over_goes_with_the_first_record_of_the_next(recorded, cuda: FakeCuda, monkeypatch) -> None:
    monkeypatch.setattr(stream_buffer, "_SHORTEST_S", 0.0)  # a batch goes at once
    loss = cuda.tensor(2.0)
    set_step(0)
    record("loss", loss)
    record("accuracy", loss)
    assert (cuda.launches, cuda.counts["events recorded"]) == (2, 0)

    set_step(1)
    record("loss", loss)
    assert (cuda.launches, cuda.counts["events recorded"]) == (4, 1)


def test_values_of_a_caller_that_has_fallen_silent_are_sent_by_the_background_thread(recorded, cuda: FakeCuda) -> None:
    record("loss", cuda.tensor(2.0))
    recorded.collect()
    recorded.collect()
    assert values(recorded.collect()) == {"loss": 2.0} or recorder.recorded == 1
    assert cuda.counts["events recorded"] == 1


@pytest.mark.usefixtures("unhurried")
def test_a_metric_object_records_one_launch_and_no_event(recorded, cuda: FakeCuda) -> None:
    loss, metric = cuda.tensor(2.0, torch.bfloat16), get_meter("train").metric("loss")
    metric.record(loss)
    with cuda.counted() as call:
        metric.record(loss)
    assert (call["launches"], call["events recorded"], call["events made"]) == (1, 0, 0)
    assert values(recorded.collect(final=True)) == {"loss": 2.0}


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        (torch.float64, 1 / 3),
        (torch.float64, 5e-324),
        (torch.float32, 0.1),
        (torch.float32, 1e-45),
        (torch.float16, 6.1e-5),
        (torch.bfloat16, 3.39e38),
        (torch.int64, 2**53 - 1),
        (torch.int64, -(2**53) + 1),
        (torch.int32, -7),
        (torch.int16, 300),
        (torch.int8, -128),
        (torch.uint8, 255),
        (torch.uint16, 65535),
        (torch.bool, True),
        (torch.float8_e4m3fn, 448.0),
        (torch.float32, math.inf),
        (torch.float32, -math.inf),
        (torch.float32, -0.0),
    ],
)
def test_a_value_of_any_type_is_what_item_would_give(recorded, cuda: FakeCuda, dtype: torch.dtype, value: Any) -> None:
    host = torch.tensor(value, dtype=dtype)
    log({"alone": cuda.tensor(host), **{f"m{i}": cuda.tensor(host) for i in range(6)}, "other": cuda.tensor(1.0)})

    found = values(recorded.collect(final=True))
    assert found.pop("other") == 1.0
    assert {repr(one) for one in found.values()} == {repr(float(host.item()))}
    assert len(found) == 7


@pytest.mark.usefixtures("unhurried")
def test_types_are_mixed_with_one_launch_of_each(recorded, cuda: FakeCuda) -> None:
    kinds = (torch.float32, torch.bfloat16, torch.int64)
    scalars = {f"m{i}": cuda.tensor(i, kinds[i % 3]) for i in FIFTY}
    for _ in range(2):
        set_step(0)
        with cuda.counted() as call:
            log(scalars)
    assert call["launches"] == 3
    assert values(recorded.collect(final=True)) == {f"m{i}": float(i) for i in FIFTY}


def test_what_happens_to_the_tensor_after_the_call_does_not_change_the_value(recorded, cuda: FakeCuda) -> None:
    cuda.stream.hold()
    for step in range(5):
        set_step(step)
        loss = torch.full((), float(step), device="cuda")
        log({"loss": loss, **{f"m{i}": loss * i for i in range(8)}})
        record("one", loss)
        loss.add_(1000)
        del loss
        torch.full((), -1.0, device="cuda")
    cuda.stream.release()

    batch = recorded.collect(final=True)
    assert by_step(batch, "loss") == by_step(batch, "one") == {step: float(step) for step in range(5)}
    assert by_step(batch, "m3") == {step: 3.0 * step for step in range(5)}


def test_values_of_several_streams_and_devices_do_not_mix(recorded, cuda: FakeCuda) -> None:
    streams = [cuda.default(0), torch.cuda.Stream(), torch.cuda.Stream(device=1), cuda.default(1)]
    for number, stream in enumerate(streams):
        stream.hold()
        with torch.cuda.stream(stream):
            for step in range(3):
                set_step(step)
                value = torch.full((), 10.0 * number + step, device=f"cuda:{stream.device_index}")
                log({f"s{number}": value})
                del value
    for stream in reversed(streams):
        stream.release()

    batch = recorded.collect(final=True)
    for number in range(4):
        assert by_step(batch, f"s{number}") == {step: 10.0 * number + step for step in range(3)}


def test_one_call_may_have_values_of_several_devices(recorded, cuda: FakeCuda) -> None:
    log({f"m{i}": cuda.tensor(float(i), device=i % 2) for i in range(10)} | {"host": 1.0, "cpu": torch.tensor(2.0)})
    found = values(recorded.collect(final=True))
    assert found == {f"m{i}": float(i) for i in range(10)} | {"host": 1.0, "cpu": 2.0}


@pytest.mark.usefixtures("unhurried")
def test_a_weight_on_the_device_is_copied_once_for_all_values(recorded, cuda: FakeCuda) -> None:
    scalars = {f"m{i}": cuda.tensor(float(i)) for i in range(10)}
    with cuda.counted() as call:
        log(scalars, weight=cuda.tensor(3.0))
    assert call["launches"] == 1
    found = {point.name: point.attributes for point in points(recorded.collect(final=True))}
    assert found == {f"m{i}": {"ml.wsum": 3.0, "ml.wxsum": 3.0 * i} for i in range(10)}


@pytest.mark.usefixtures("unhurried")
def test_elements_of_vectors_are_records(recorded, cuda: FakeCuda) -> None:
    define_metric("*", reduce="mean")
    with cuda.counted() as call:
        log({"a": cuda.tensor([1.0, 2.0, 6.0]), "b": cuda.tensor([[5.0]]).view(1), "c": cuda.tensor(7.0)})
    record("long", cuda.tensor(torch.arange(5000.0)))
    record("strided", cuda.tensor(torch.arange(8.0))[::2])
    record("wide", cuda.tensor(3.0).expand(4))
    record("empty", cuda.tensor([]))
    found = {point.name: point.moments[:2] for point in points(recorded.collect(final=True))}

    assert call["launches"] == 1
    assert found == {
        "a": (3, 9.0), "b": (1, 5.0), "c": (1, 7.0), "long": (5000, 12497500.0), "strided": (4, 12.0), "wide": (4, 12.0)
    }  # fmt: skip


def test_more_values_in_a_step_than_a_batch_holds_are_several_batches(recorded, cuda: FakeCuda) -> None:
    metric = get_meter("train").metric("x", reduce="sum")
    for i in range(3 * pinned_memory.SIZE + 7):
        metric.record(cuda.tensor(i))
    (point,) = points(recorded.collect(final=True))
    n = 3 * pinned_memory.SIZE + 7
    assert point.moments[:2] == (n, n * (n - 1) / 2)


@pytest.mark.parametrize("mode", ["default", "warn", "error"])
def test_no_thread_synchronizes_in_any_debug_mode(recorded, cuda: FakeCuda, mode: str, recwarn) -> None:
    torch.cuda.set_sync_debug_mode(mode)
    for step in range(20):
        set_step(step)
        log({"x": cuda.tensor(float(step))}, weight=cuda.tensor(2.0))
        recorded.collect()
    recorded.collect(final=True)
    assert recorder.recorded == 20
    assert recorder.dropped == {}
    assert not [one for one in recwarn if "synchroniz" in str(one.message)]


def test_a_default_device_of_the_program_changes_nothing(recorded, cuda: FakeCuda) -> None:
    one, many = cuda.tensor(1.0), {f"m{i}": cuda.tensor(float(i)) for i in range(6)}
    with torch.device("cuda"):
        record("one", one)
        log(many)
        found = values(recorded.collect(final=True))
    assert found == {"one": 1.0} | {f"m{i}": float(i) for i in range(6)}


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
    device_batch.STAGING.forget()
    gc.collect()
    assert cuda.allocated == held
    with cuda.counted() as asked:
        device_batch.STAGING.look(everything=True)
    assert asked == {}


def test_a_tensor_that_needs_gradients_or_none_is_a_value_like_another(recorded, cuda: FakeCuda) -> None:
    with torch.inference_mode():
        record("first", cuda.tensor(1.0))  # the buffer is made in inference mode, and used outside of it
        inference = cuda.tensor(2.0) * 1
    grows = cuda.tensor(3.0, requires_grad=True)
    log({"leaf": grows, "computed": grows * 2, "inference": inference})
    record("computed too", grows * 3)
    found = values(recorded.collect(final=True))
    assert found == {"first": 1.0, "leaf": 3.0, "computed": 6.0, "inference": 2.0, "computed too": 9.0}


@pytest.mark.parametrize(
    "make",
    [
        lambda cuda: cuda.tensor(1 + 2j),
        lambda cuda: cuda.tensor([[1.0]]),
        lambda cuda: torch.tensor(1.0, device="meta"),
        lambda cuda: torch.tensor([1.0, 0.0]).to_sparse(),
    ],
)
def test_what_is_no_number_is_refused_beside_values_that_are(
    recorded, cuda: FakeCuda, make: Callable[..., Any]
) -> None:
    bad = make(cuda)
    for _ in range(2):
        log({"bad": bad, **{f"m{i}": cuda.tensor(float(i)) for i in range(8)}})
    assert values(recorded.collect(final=True)) == {f"m{i}": float(i) for i in range(8)}
    assert recorder.dropped == {"bad_value": 2}


def test_a_value_inside_a_captured_graph_is_that_of_its_replay_and_the_graph_is_whole(recorded, cuda: FakeCuda) -> None:
    record("before", cuda.tensor(1.0))
    graph, x = torch.cuda.CUDAGraph(), cuda.tensor(2.0)
    with torch.cuda.graph(graph):
        y = x * 2
        log({"inside": y, "host": 3.0})
        other = threading.Thread(target=lambda: [recorded.collect() for _ in range(3)])
        other.start()
        other.join()
    graph.replay()
    record("after", y)
    set_step(1)
    assert values(recorded.collect(final=True)) == {"inside": 4.0, "after": 4.0}
    assert recorder.dropped == {}
    assert recorder.recorded == 4


def test_a_batch_does_not_go_into_a_graph_that_its_own_stream_is_captured_into(recorded, cuda: FakeCuda) -> None:
    stream, graph, x = torch.cuda.Stream(), torch.cuda.CUDAGraph(), cuda.tensor(2.0)
    with torch.cuda.stream(stream):
        record("warm", x)
    with torch.cuda.graph(graph, stream=stream):
        x.add_(1)
        other = threading.Thread(target=lambda: [recorded.collect() for _ in range(3)])
        other.start()
        other.join()
    assert len(graph.work) == 1
    graph.replay()
    assert values(recorded.collect(final=True)) == {"warm": 2.0}


def test_a_device_that_hangs_is_not_waited_for_and_what_it_holds_is_counted(recorded, cuda: FakeCuda) -> None:
    cuda.stream.hold()
    for step in range(3):
        set_step(step)
        log({f"m{i}": cuda.tensor(float(i)) for i in range(10)})
    log({"host": 1.0})
    batch = recorded.collect(final=True)
    assert values(batch) == {"host": 1.0}
    assert recorder.dropped == {"device_not_done": 30}


def test_a_device_that_fails_costs_its_values_and_raises_nothing(recorded, cuda: FakeCuda) -> None:
    set_step(0)
    log({f"m{i}": cuda.tensor(float(i)) for i in range(10)})
    cuda.broken = RuntimeError("CUDA error: device-side assert triggered")
    x = cuda.tensor(1.0)
    log({"later": x, "host": 1.0})
    batch = recorded.collect(final=True)
    assert values(batch) == {"host": 1.0}
    assert recorder.dropped == {"device_error": 11}
    cuda.broken = None


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


def test_a_stream_that_torch_has_not_made_is_not_used_after_the_call(recorded, cuda: FakeCuda) -> None:
    foreign = torch.cuda.Stream()
    foreign.stream_id = 0x7F00  # as of a pointer, which an external stream has
    with torch.cuda.stream(foreign):
        record("x", cuda.tensor(4.0))
    with cuda.counted() as later:
        found = values(recorded.collect(final=True))
    assert found == {"x": 4.0}
    assert later["launches"] == 0


def test_a_device_that_nobody_may_be_on_any_more_costs_its_values_alone(
    recorded, cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost() -> int:
        raise RuntimeError("CUDA error: device is lost")

    set_step(0)
    record("short", cuda.tensor(1.0))
    record("long", cuda.tensor([1.0] * 600))  # a batch of its own
    record("host", 1.0)
    monkeypatch.setattr(torch.cuda, "current_device", lost)

    assert values(recorded.collect(final=True)) == {"host": 1.0}
    assert sum(recorder.dropped.values()) == 601


def test_a_handler_that_records_in_the_middle_of_a_record_loses_nothing(recorded, cuda: FakeCuda, monkeypatch) -> None:
    record("before", cuda.tensor(1.0))
    one, interrupted = cuda.tensor(2.0), []
    copy = gather._copy

    def interrupt(*arguments: Any) -> None:
        if not interrupted:
            interrupted.append(True)
            record("handler", one)
        copy(*arguments)

    monkeypatch.setattr(gather, "_copy", interrupt)  # a signal that comes in the middle of it
    log({"outer": cuda.tensor(3.0), "too": cuda.tensor(4.0)})
    assert values(recorded.collect(final=True)) == {"before": 1.0, "handler": 2.0, "outer": 3.0, "too": 4.0}


def test_many_threads_record_on_one_stream(recorded, cuda: FakeCuda) -> None:
    metric = get_meter("train").metric("x", reduce="sum")

    def records() -> None:
        for i in range(100):
            metric.record(cuda.tensor(float(i)))

    threads = [threading.Thread(target=records) for _ in range(4)]
    for thread in threads:
        thread.start()
    eventually(lambda: [recorded.collect()] and not any(thread.is_alive() for thread in threads), timeout=60)
    recorded.collect(final=True)
    assert recorder.recorded == 400
    assert recorder.dropped == {}


SCALARS = st.one_of(
    st.tuples(st.just(torch.float64), st.floats(allow_nan=False)),
    st.tuples(st.just(torch.float32), st.floats(width=32, allow_nan=False)),
    st.tuples(st.just(torch.float16), st.floats(width=16, allow_nan=False)),
    st.tuples(st.just(torch.int64), st.integers(-(2**63), 2**63 - 1)),
    st.tuples(st.just(torch.bool), st.booleans()),
)
CALLS = st.lists(st.dictionaries(st.sampled_from("abcdefgh"), SCALARS, min_size=1), min_size=1, max_size=6)


@given(CALLS, st.data())
def test_any_calls_give_what_item_would_have_given_at_each(calls: list[dict[str, Any]], data: st.DataObject) -> None:
    wanted: dict[tuple[str, int], float] = {}
    with fake_cuda() as cuda, isolated():
        recorder.enabled = True
        streams = [cuda.default(0), torch.cuda.Stream()]
        found: dict[tuple[str, int], float] = {}

        def collect(*, final: bool = False) -> None:
            for point in points(recorder.collect(1, final=final)):
                found[point.name, point.step] = point.moments[1]

        for step, call in enumerate(calls):
            set_step(step)
            stream = data.draw(st.sampled_from(streams))
            if data.draw(st.booleans()):
                stream.hold()
            with torch.cuda.stream(stream):
                tensors = {name: cuda.tensor(value, kind) for name, (kind, value) in call.items()}
                log(tensors)
                for tensor in tensors.values():
                    tensor.zero_()
            wanted |= {
                (name, step): float(torch.tensor(value, dtype=kind).item()) for name, (kind, value) in call.items()
            }
            del tensors, tensor
            if data.draw(st.booleans()):
                collect()
        for stream in streams:
            stream.release()
        collect(final=True)
        assert cuda.waits == []
    assert found == wanted
