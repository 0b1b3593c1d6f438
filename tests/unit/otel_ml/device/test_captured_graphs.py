"""`log()` and `record()` inside a captured CUDA graph: what each replay computed is in the run."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch

import otel_ml
from otel_ml._internal.devices import cuda_graphs
from otel_ml._internal.error_reporting import reporter
from otel_ml.testing import Capture, capture
from tests.fake_cuda import FakeCuda
from tests.waiting import eventually


@pytest.fixture
def run(cuda: FakeCuda) -> Iterator[Capture]:
    """A run whose device stands there until it ends."""
    with capture() as found:
        yield found


def captured(call: Callable[[], object]) -> torch.cuda.CUDAGraph:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph


def test_each_replay_is_recorded_at_its_step(cuda: FakeCuda, run: Capture) -> None:
    x = cuda.tensor(0.0)
    graph = captured(lambda: otel_ml.log({"loss": x * 2 + 1}))
    for step in range(5):
        otel_ml.set_step(step)
        x.fill_(step)
        graph.replay()
    otel_ml.set_step(5)

    assert eventually(lambda: len(run.values("loss")) == 5)
    assert run.values("loss") == [1.0, 3.0, 5.0, 7.0, 9.0]


def test_a_replay_counts_in_the_step_it_was_launched_in_however_far_the_device_is_behind(
    cuda: FakeCuda, run: Capture
) -> None:
    x = cuda.tensor(0.0)
    graph = captured(lambda: otel_ml.log({"loss": x}))
    cuda.stream.hold()
    for step in range(6):
        otel_ml.set_step(step)
        x.add_(1)
        graph.replay()
    otel_ml.set_step(6)
    otel_ml.flush()
    assert run.values("loss") == []

    cuda.stream.release()
    assert eventually(lambda: len(run.values("loss")) == 6)
    assert run.values("loss") == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]


def test_every_replay_of_a_step_is_a_record_and_a_step_without_one_has_none(cuda: FakeCuda, run: Capture) -> None:
    x = cuda.tensor(0.0)
    graph = captured(lambda: otel_ml.log({"loss": x}))
    for step, replays in enumerate((3, 0, 1)):
        otel_ml.set_step(step)
        for _ in range(replays):
            x.add_(1)
            graph.replay()
    otel_ml.set_step(3)

    assert eventually(lambda: len(run.values("loss")) == 2)
    found = {point.step: (point.count, point.value, point.min, point.max) for point in run.points}
    assert found == {0: (3, 6.0, 1.0, 3.0), 2: (1, 4.0, 4.0, 4.0)}


def test_capturing_itself_records_nothing_of_the_device_and_a_number_of_the_host_once(
    cuda: FakeCuda, run: Capture
) -> None:
    x = cuda.tensor(7.0)
    otel_ml.set_step(0)
    graph = captured(lambda: otel_ml.log({"loss": x, "lr": 0.5}))
    otel_ml.set_step(1)
    assert eventually(lambda: run.values("lr") == [0.5])
    assert run.values("loss") == []

    for step in (1, 2):
        otel_ml.set_step(step)
        graph.replay()
    otel_ml.set_step(3)
    assert eventually(lambda: run.values("loss") == [7.0, 7.0])
    assert run.values("lr") == [0.5]


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        (torch.float32, 1 / 3),
        (torch.float64, 1 / 3),
        (torch.bfloat16, 3.140625),
        (torch.float16, 0.1),
        (torch.int64, 2**53 - 1),
        (torch.bool, True),
        (torch.float32, float("nan")),
        (torch.float32, float("-inf")),
    ],
)
def test_a_value_is_exactly_what_the_replay_computed(
    cuda: FakeCuda, run: Capture, dtype: torch.dtype, value: float
) -> None:
    x, other = cuda.tensor(value, dtype=dtype), cuda.tensor(0.5, dtype=torch.bfloat16)
    graph = captured(lambda: otel_ml.log({"x": x, "other": other}))
    otel_ml.set_step(0)
    graph.replay()
    otel_ml.set_step(1)

    assert eventually(lambda: run.values("x"))
    assert run.values("x") == pytest.approx([float(torch.tensor(value, dtype=dtype))], rel=0, abs=0, nan_ok=True)
    assert run.values("other") == [0.5]


def test_each_element_of_a_vector_is_a_record(cuda: FakeCuda, run: Capture) -> None:
    losses, one = cuda.tensor([1.0, 4.0]), cuda.tensor(7.0)
    graph = captured(lambda: otel_ml.log({"each": losses, "one": one}))
    otel_ml.set_step(0)
    graph.replay()
    otel_ml.set_step(1)

    assert eventually(lambda: {point.name for point in run.points} >= {"each", "one"})
    assert {point.name: (point.count, point.value) for point in run.points} == {"each": (2, 5.0), "one": (1, 7.0)}


def test_a_metric_of_a_meter_is_recorded_by_each_replay(cuda: FakeCuda, run: Capture) -> None:
    metric = otel_ml.get_meter().metric("grad", reduce="max")
    x = cuda.tensor(0.0, requires_grad=True)
    graph = captured(lambda: (metric.record(x), otel_ml.record("again", x + 1, attributes={"part": "a"})))
    for step in range(3):
        with otel_ml.step(step):
            graph.replay()

    assert eventually(lambda: run.values("grad") == [0.0, 0.0, 0.0])
    assert run.values("again") == [1.0, 1.0, 1.0]


def test_a_program_without_steps_has_its_replays_too(cuda: FakeCuda, run: Capture) -> None:
    x = cuda.tensor(2.0)
    graph = captured(lambda: otel_ml.log({"decoded": x}))
    for _ in range(4):
        graph.replay()

    assert eventually(lambda: sum(point.count for point in run.points if point.name == "decoded") == 4)


def test_graphs_captured_in_inference_mode_are_read(cuda: FakeCuda, run: Capture) -> None:
    x = cuda.tensor(1.0)
    with torch.inference_mode():
        graphs = [captured(lambda: otel_ml.log({"x": x * 2})) for _ in range(3)]
    for step, graph in enumerate(graphs):
        otel_ml.set_step(step)
        with torch.inference_mode():
            graph.replay()
    otel_ml.set_step(3)

    assert eventually(lambda: run.values("x") == [2.0, 2.0, 2.0])


def test_more_replays_than_are_kept_between_two_looks_are_counted_as_lost(
    cuda: FakeCuda, run: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from otel_ml._internal.devices.graph_ring_buffer import Ring

    monkeypatch.setattr(Ring, "ROWS", 8)
    x = cuda.tensor(0.0)
    graph = captured(lambda: otel_ml.log({"x": x}))
    otel_ml.set_step(0)
    cuda.stream.hold()
    for _ in range(100):
        x.add_(1)
        graph.replay()
    otel_ml.set_step(1)
    cuda.stream.release()

    [kept] = eventually(lambda: [point for point in run.points if point.name == "x"])
    assert kept.max == 100.0
    lost = 100 - kept.count
    assert lost >= 92
    assert any("captured-overrun" in notice for notice in run.notices)


def test_replays_of_a_step_that_is_too_long_to_keep_all_of_them_are_counted_as_lost(
    cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda_graphs, "_MAX_HELD", 30)  # of 100,000, which take minutes
    with capture() as run:
        x = cuda.tensor(1.0)
        graph = captured(lambda: otel_ml.log({"x": x}))
        with otel_ml.step(0):  # which step it is, this context alone knows until it ends
            for _ in range(100):
                graph.replay()
            assert eventually(lambda: reporter.dropped["captured_overrun"])
        otel_ml.shutdown()
        [goodbye] = [event for event in run._transport.events if event.kind == "ml.writer.end"]
        notices = [str(event.body) for event in run._transport.events if event.kind == "ml.notice"]
    lost = goodbye.attributes["otel_ml.dropped"]["captured_overrun"]
    assert lost + goodbye.attributes["otel_ml.recorded"] == 100
    assert sum("captured-overrun" in notice for notice in notices) == 1


def test_a_run_ends_while_a_device_hangs_and_what_never_came_is_counted(cuda: FakeCuda) -> None:
    with capture() as run:
        x = cuda.tensor(0.0)
        graph = captured(lambda: otel_ml.log({"x": x}))
        otel_ml.set_step(0)
        cuda.stream.hold()
        graph.replay()
        otel_ml.shutdown()
        [goodbye] = [event for event in run._transport.events if event.kind == "ml.writer.end"]
    assert goodbye.attributes["otel_ml.dropped"] == {"device_not_done": 1}


def test_the_value_of_a_replay_just_before_the_end_is_in_the_run(cuda: FakeCuda) -> None:
    with capture() as run:
        x = cuda.tensor(5.0)
        graph = captured(lambda: otel_ml.log({"x": x}))
        otel_ml.set_step(0)
        graph.replay()
        otel_ml.shutdown()
        [goodbye] = [event for event in run._transport.events if event.kind == "ml.writer.end"]
    assert goodbye.attributes["otel_ml.recorded"] == 1
    assert goodbye.attributes["otel_ml.dropped"] == {}


def test_what_is_no_value_is_said_and_the_rest_is_captured(cuda: FakeCuda, run: Capture) -> None:
    x = cuda.tensor([[1.0]])
    good = cuda.tensor(1.0)
    graph = captured(lambda: otel_ml.log({"matrix": x, "good": good, "list": [good, good]}))
    otel_ml.set_step(0)
    graph.replay()
    otel_ml.set_step(1)

    assert eventually(lambda: run.values("good") == [1.0])
    assert len([notice for notice in run.notices if "matrix" in notice or "list" in notice]) == 2


def test_where_the_device_has_no_memory_the_graph_is_captured_without_and_it_is_said(
    cuda: FakeCuda, run: Capture
) -> None:
    x = cuda.tensor(1.0)

    def call() -> None:
        cuda.device_left = 0
        otel_ml.log({"x": x, "of_host": 1.0})
        cuda.device_left = None
        x.add_(1)

    graph = captured(call)
    otel_ml.set_step(0)
    graph.replay()
    otel_ml.log({"after": 1.0})

    assert x.inner.item() == 2.0
    assert run.values("after") == [1.0]
    assert [notice for notice in run.notices if "'x'" in notice and "out of memory" in notice]


def test_a_call_in_a_graph_is_a_dozen_kernels_however_many_values_it_has(cuda: FakeCuda, run: Capture) -> None:
    def kernels(values: int) -> int:
        tensors = {f"v{i}": cuda.tensor(float(i)) for i in range(values)}
        stream = torch.cuda.Stream()  # the background thread launches, too, on others
        with torch.cuda.graph(torch.cuda.CUDAGraph(), stream=stream):
            otel_ml.log(tensors)
        return int(stream.launches)  # type: ignore[attr-defined]

    assert 1 < kernels(50) == kernels(1) <= 12


def test_between_steps_one_launch_is_made_however_many_graphs_there_are(cuda: FakeCuda, run: Capture) -> None:
    x = cuda.tensor(1.0)
    for name in ("a", "b", "c"):
        captured(lambda name=name: otel_ml.log({name: x}))
    before = [stream for _, stream in cuda.operations].count(cuda.stream)
    for step in range(10):
        otel_ml.set_step(step)
    assert [stream for _, stream in cuda.operations].count(cuda.stream) - before == 10


@pytest.fixture
def deterministic() -> Iterator[None]:
    """A program that asked torch for deterministic algorithms."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.usefixtures("deterministic")
def test_replays_are_recorded_where_algorithms_are_deterministic(cuda: FakeCuda, run: Capture) -> None:
    x = cuda.tensor(0.0)
    graph = captured(lambda: otel_ml.log({"loss": x * 2 + 1}))
    for step in range(5):
        otel_ml.set_step(step)
        x.fill_(step)
        graph.replay()
    otel_ml.set_step(5)

    assert eventually(lambda: len(run.values("loss")) == 5)
    assert run.values("loss") == [1.0, 3.0, 5.0, 7.0, 9.0]
    assert cuda.waits == []


def test_memory_that_does_not_outlive_a_replay_is_not_read(
    cuda: FakeCuda, run: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_allocator_backend", lambda: "cudaMallocAsync")
    x = cuda.tensor(0.0)
    otel_ml.set_step(0)
    graph = captured(lambda: otel_ml.log({"loss": x, "lr": 0.5}))
    otel_ml.set_step(1)
    graph.replay()
    otel_ml.set_step(2)

    assert eventually(lambda: run.values("lr"))
    assert any("backend:native" in notice for notice in run.notices)
    assert run.values("loss") == []
