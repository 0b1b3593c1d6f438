"""Images, sounds and histograms of tensors on a CUDA device: copied at the call, fetched later, without a wait."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
import torch

from otel_ml._internal.devices import arrays
from otel_ml._internal.devices.arrays import NotYetError, copied
from otel_ml._internal.events.event_queue import EventQueue
from otel_ml._internal.events.log_record import LogRecord
from otel_ml._internal.messages.recorder import recorder
from tests.fake_cuda import FakeCuda


def fetched(read: Any) -> Any:
    """Return an array that its device has been done with for long: each look brings it a part further."""
    for _ in range(100):
        try:
            return read()
        except NotYetError:
            continue
    raise AssertionError("it never came")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.uint8, torch.int64, torch.bool])
def test_an_array_is_what_the_tensor_held_at_the_call(cuda: FakeCuda, dtype: torch.dtype) -> None:
    wanted = torch.arange(12).reshape(3, 4).to(dtype)
    cuda.stream.hold()
    tensor = cuda.tensor(wanted)
    read = copied(tensor.t())
    tensor.zero_()
    del tensor
    with pytest.raises(NotYetError):
        read()
    cuda.stream.release()

    assert np.array_equal(fetched(read), wanted.t().float().numpy())


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1000, 7)])
def test_it_comes_in_parts_through_little_pinned_memory(cuda: FakeCuda, monkeypatch, shape: tuple[int, ...]) -> None:
    monkeypatch.setattr(arrays, "PART", 4096)
    wanted = torch.rand(shape)
    with cuda.counted() as asked:
        found = fetched(copied(cuda.tensor(wanted, requires_grad=True)))
    assert np.array_equal(found, wanted.numpy())
    assert found.shape == shape
    assert asked["pinned"] <= 1
    assert asked["copies"] == -(-4 * wanted.numel() // 4096)


def test_it_does_not_queue_behind_the_work_of_training(cuda: FakeCuda) -> None:
    read = copied(cuda.tensor([1.0, 2.0]))
    cuda.stream.hold()
    assert fetched(read).tolist() == [1.0, 2.0]


def test_events_that_are_not_there_yet_hold_up_no_other(recorded, cuda: FakeCuda) -> None:
    queue = EventQueue()
    cuda.stream.hold()
    read = copied(cuda.tensor([1.0, 2.0]))
    queue.put("log_histogram()", lambda: (LogRecord("array", read().tolist()),))
    queue.put("log_text()", lambda: (LogRecord("text", "hello"),))
    assert [record.event for record in queue.take()] == ["text"]
    assert queue.on_their_way == 1

    cuda.stream.release()
    bodies = [record.body for _ in range(5) for record in queue.take()]
    assert bodies == [[1.0, 2.0]]
    assert queue.on_their_way == 0


def test_what_never_comes_is_counted(recorded, cuda: FakeCuda) -> None:
    queue = EventQueue()
    cuda.stream.hold()
    read = copied(cuda.tensor([1.0, 2.0]))
    queue.put("log_histogram()", lambda: (LogRecord("array", read().tolist()),))
    assert list(queue.take()) == []
    queue.give_up()
    assert recorder.dropped == {"device_not_done": 1}
    assert list(queue.take()) == []


def test_a_graph_that_is_captured_meanwhile_stays_whole(cuda: FakeCuda) -> None:
    read, found = copied(cuda.tensor([1.0, 2.0])), []
    graph, x = torch.cuda.CUDAGraph(), cuda.tensor(1.0)
    with torch.cuda.graph(graph):
        x.add_(1)
        with pytest.raises(ValueError, match="captured"):
            copied(x)
        other = threading.Thread(target=lambda: found.append(fetched(read)))
        other.start()
        other.join()
    graph.replay()
    assert x.inner.item() == 2.0
    assert found[0].tolist() == [1.0, 2.0]
