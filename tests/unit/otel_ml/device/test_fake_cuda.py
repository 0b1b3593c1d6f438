"""What the device of these tests gets right: else a program that is wrong on a card would pass them."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable

import pytest
import torch

from otel_ml._internal.record.log import log
from tests.fake_cuda import CudaTensor, FakeCuda, fake_cuda
from tests.unit.otel_ml.record.conftest import Recorded


def test_work_is_done_in_the_order_of_its_stream_and_what_is_not_done_cannot_be_seen(cuda: FakeCuda) -> None:
    x = cuda.tensor(3.0)
    cuda.stream.hold()
    both = torch.stack([x, x * 2])
    x.zero_()
    host = torch.empty(2, pin_memory=True)
    host.copy_(both, non_blocking=True)
    event = torch.cuda.Event()
    event.record()
    assert not event.query()
    assert host.tolist() != [3.0, 6.0]

    cuda.stream.release()
    assert event.query()
    assert host.tolist() == [3.0, 6.0]


def test_another_stream_reads_what_is_there_unless_it_waits_for_the_first(cuda: FakeCuda) -> None:
    other = torch.cuda.Stream()
    x = cuda.tensor(3.0)
    cuda.stream.hold()
    x.add_(1)
    with torch.cuda.stream(other):
        early = x.clone()
        other.wait_stream(cuda.default(0))
        late = x.clone()
    cuda.stream.release()

    assert (early.inner.item(), late.inner.item()) == (3.0, 4.0)


def test_freed_memory_is_used_again_while_another_stream_reads_it(cuda: FakeCuda) -> None:
    other = torch.cuda.Stream()
    other.hold()
    freed, kept = cuda.tensor([1.0, 2.0]), cuda.tensor([1.0, 2.0])
    with torch.cuda.stream(other):
        of_freed, of_kept = freed.clone(), kept.clone()
    kept.record_stream(other)
    del freed, kept
    other.release()

    assert of_freed.inner.tolist() != [1.0, 2.0]
    assert of_kept.inner.tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    "read",
    [
        CudaTensor.item,
        CudaTensor.cpu,
        CudaTensor.tolist,
        CudaTensor.__bool__,
        CudaTensor.__float__,
        CudaTensor.nonzero,
        lambda x: torch.cuda.synchronize(),
        lambda x: torch.empty((), pin_memory=True).copy_(x),
        lambda x: torch.empty(()).copy_(x, non_blocking=True),
    ],
)
def test_what_waits_raises_and_is_known(read: Callable[[CudaTensor], object]) -> None:
    with fake_cuda() as cuda:
        with pytest.raises(RuntimeError):
            read(cuda.tensor(3.0))
        assert len(cuda.waits) == 1


def test_a_module_can_be_on_the_device(cuda: FakeCuda) -> None:
    linear = cuda.module(torch.nn.Linear(3, 2))
    found = linear(torch.ones(4, 3, device="cuda"))
    assert found.device == torch.device("cuda", 0)
    assert cuda.launches == 2


def test_a_captured_graph_does_its_work_at_each_replay(cuda: FakeCuda) -> None:
    x, slot, graph = cuda.tensor(1.0), cuda.tensor(0.0), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        slot.copy_(x * 2)
    found = []
    for value in (3.0, 4.0):
        x.fill_(value)
        graph.replay()
        found.append(slot.inner.item())
    assert found == [6.0, 8.0]


def test_a_query_of_another_thread_breaks_a_capture(cuda: FakeCuda) -> None:
    event, graph = torch.cuda.Event(), torch.cuda.CUDAGraph()
    event.record()
    with pytest.raises(RuntimeError, match="capture"), torch.cuda.graph(graph):
        event.query()


def test_memory_that_is_freed_in_the_middle_of_a_kernel_does_nothing_twice_and_leaves_nothing_out(
    cuda: FakeCuda,
) -> None:
    freed, done = [cuda.tensor(1.0)], []
    cuda.stream.hold()
    cuda.launch(lambda: (done.append("first"), freed.clear()))  # as when the garbage collector runs there
    cuda.launch(lambda: done.append("second"))
    cuda.stream.release()

    assert done == ["first", "second"]
    assert cuda.stream.is_idle


def test_each_thread_goes_back_to_its_own_stream(cuda: FakeCuda) -> None:
    shared, own, entered, left = torch.cuda.Stream(), torch.cuda.Stream(), threading.Event(), threading.Event()
    found = []

    def use() -> None:
        with torch.cuda.stream(own):
            with torch.cuda.stream(shared):
                entered.set()
                left.wait(20)
            found.append(torch.cuda.current_stream())

    other = threading.Thread(target=use)
    with torch.cuda.stream(shared):
        other.start()
        assert entered.wait(20)
    left.set()
    other.join()

    assert found == [own]
    assert torch.cuda.current_stream() is cuda.default(0)


def test_what_torch_imports_meanwhile_is_whole() -> None:
    code = (
        "from tests.fake_cuda import fake_cuda\n"
        "with fake_cuda():\n"
        "    import torch._dynamo.device_interface as found\n"
        "    import torch\n"
        "assert found.CudaInterface.Event is torch.cuda.Event\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_graph_that_records_is_not_looked_at_once_its_card_is_gone(recorded: Recorded) -> None:
    with fake_cuda() as first:
        x = first.tensor(1.0)
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            log({"x": x})
        recorded.collect()
        recorded.collect()
    with fake_cuda() as second:
        for _ in range(3):
            recorded.collect(final=True)
        assert (second.waits, second.launches) == ([], 0)
