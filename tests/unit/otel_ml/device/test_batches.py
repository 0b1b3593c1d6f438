"""Values on a CUDA device travel in batches: few launches, one copy a step, and nobody waits for them."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch

from otel_ml._internal.devices import gather, pinned_memory, stream_buffer
from otel_ml._internal.messages.recorder import recorder
from otel_ml._internal.record.log import log, record
from otel_ml._internal.record.meter import get_meter
from otel_ml._internal.steps.step import set_step
from tests.fake_cuda import FakeCuda
from tests.unit.otel_ml.device.batch_of_values import FIFTY, values
from tests.unit.otel_ml.record.decoded import points
from tests.waiting import eventually


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
