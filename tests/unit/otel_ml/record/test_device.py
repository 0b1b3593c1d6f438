"""Values that come later. A device is stood in for by events the test fires; the tensors are torch's own."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from otel_ml._internal.axes import current_step
from otel_ml._internal.buffer import RECORDS
from otel_ml._internal.definition import DEFINITIONS
from otel_ml._internal.device import Deferred, DeviceElapsed, DeviceTensor, Weighted
from otel_ml._internal.log import log, record
from otel_ml._internal.recorder import recorder
from otel_ml._internal.step import set_step
from otel_ml._internal.timing import timed
from otel_ml.wire.reduction import Reduction
from tests.unit.otel_ml.record.decoded import manifests, points


class Event:
    """A device event: done when the test says so."""

    def __init__(self, at_ms: float = 0.0) -> None:
        self.done = False
        self.at_ms = at_ms

    def query(self) -> bool:
        return self.done

    def elapsed_time(self, end: Event) -> float:
        return end.at_ms - self.at_ms


def append(name: str, value: Deferred, time_ns: int = 1) -> None:
    RECORDS.extend((DEFINITIONS.series(name), current_step(), value, time_ns))


def test_a_value_is_read_when_its_event_is_done_and_the_manifest_waits_for_it(recorded):
    event = Event()
    set_step(0)
    append("loss", DeviceTensor(torch.tensor(3.0), event))
    log({"x": 1.0})
    set_step(1)

    batch = recorded.collect(after_s=5)
    assert [point.name for point in points(batch)] == ["x"]
    assert manifests(batch) == {}
    assert batch.values == 1

    event.done = True
    batch = recorded.collect(after_s=6)
    (point,) = points(batch, "loss")
    assert (point.step, point.moments) == (0, (1, 3.0))
    assert manifests(batch) == {("step", 0): 2}
    assert recorder.recorded == 2


def test_elements_of_a_device_vector_are_records_of_their_own(recorded):
    event = Event()
    event.done = True
    DEFINITIONS.series("x", reduction=Reduction())
    append("x", DeviceTensor(torch.tensor([1.0, 2.0, 3.0], dtype=torch.bfloat16), event))

    (point,) = points(recorded.collect())
    assert point.moments == (3, 6.0)


def test_the_order_is_that_of_the_calls_however_late_a_value_comes(recorded):
    event = Event()
    DEFINITIONS.series("lr")
    from otel_ml._internal.definition import define_metric

    define_metric("lr", reduce="last")
    append("lr", DeviceTensor(torch.tensor(1.0), event), time_ns=1)
    record("lr", 2.0)
    first = recorded.collect()
    event.done = True
    second = recorded.collect()

    times = [(point.raw.time_unix_nano, point.value) for batch in (first, second) for point in points(batch)]
    assert max(times)[1] == 2.0


def test_a_timer_of_the_device_is_read_in_seconds(recorded):
    begin, end = Event(at_ms=100.0), Event(at_ms=350.0)
    append("time/kernel", DeviceElapsed(begin, end))
    assert recorded.collect().values == 0

    end.done = True
    (point,) = points(recorded.collect())
    assert point.raw.sum == 0.25


def test_a_weight_on_the_device_waits_like_its_value(recorded):
    event = Event()
    append("ce", Weighted([1.0, 2.0], DeviceTensor(torch.tensor([3.0, -1.0]), event)))
    assert recorded.collect().values == 0

    event.done = True
    (point,) = points(recorded.collect())
    assert point.attributes == {"ml.wsum": 3.0, "ml.wxsum": 3.0}
    assert recorder.dropped == {"bad_weight": 1}


def test_at_the_end_values_that_never_come_are_counted(recorded):
    set_step(0)
    append("x", DeviceTensor(torch.tensor(1.0), Event()))
    log({"y": 1.0})

    batch = recorded.collect(final=True)
    assert recorder.dropped == {"device_not_done": 1}
    assert manifests(batch) == {("step", 0): 1}


def test_a_device_that_fails_costs_its_value_and_nothing_else(recorded):
    class Broken(Event):
        def query(self) -> bool:
            raise RuntimeError("device-side assert")

    append("x", DeviceTensor(torch.tensor(1.0), Broken()))
    log({"y": 1.0})

    assert [point.name for point in points(recorded.collect(final=True))] == ["y"]
    assert recorder.dropped == {"device_error": 1}


class Asynchronous:
    """An array as JAX has it: immutable, computed in its own time."""

    ndim = 0

    def __init__(self) -> None:
        self.computed = False

    def is_ready(self) -> bool:
        return self.computed

    def __array__(self) -> object:
        raise AssertionError("asked for its value before it was ready")

    def reshape(self, _: int) -> torch.Tensor:
        assert self.computed
        return torch.tensor([4.0])


def test_an_array_that_is_still_computed_is_not_waited_for(recorded):
    value = Asynchronous()
    record("x", value)
    assert recorded.collect().values == 0

    value.computed = True
    (point,) = points(recorded.collect())
    assert point.moments == (1, 4.0)


HOUR_S = 3600.0
"""What the device measures between two of its events: more than any pause of the machine that runs the test."""


class Cuda:
    """`torch.cuda` at its boundary: what was asked of it, in order, and never to wait."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.events: list[CudaEvent] = []
        self.capturing = False
        self.works = True
        self.initialized = True

    def event(self, *, enable_timing: bool = False) -> CudaEvent:
        found = CudaEvent(self, at_ms=len(self.events) * HOUR_S * 1000)
        self.events.append(found)
        return found


class CudaEvent(Event):
    def __init__(self, cuda: Cuda, at_ms: float) -> None:
        super().__init__(at_ms)
        self.cuda = cuda

    def record(self, stream: str = "current") -> None:
        if not self.cuda.works:
            raise RuntimeError("CUDA error: device-side assert triggered")
        self.cuda.calls.append(f"event on {stream}")

    def synchronize(self) -> None:
        raise AssertionError("The caller would wait for the device.")


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Cuda:
    found = Cuda()
    for name, stand_in in {
        "Event": found.event,
        "current_stream": lambda device: f"stream of {device}",
        "is_current_stream_capturing": lambda: found.capturing,
        "is_initialized": lambda: found.initialized,
        "synchronize": lambda *_: pytest.fail("The device is waited for."),
    }.items():
        monkeypatch.setattr(torch.cuda, name, stand_in)
    return found


def test_a_cuda_timer_measures_between_two_events(recorded, cuda):
    with timed("t", device="cuda"):
        pass

    assert recorded.collect().values == 0
    cuda.events[1].done = True
    (point,) = points(recorded.collect())
    assert point.raw.sum == HOUR_S


@pytest.mark.parametrize("at", ["begin", "end"])
def test_a_cuda_timer_measures_on_the_cpu_where_cuda_fails(recorded, cuda, at):
    cuda.works = at == "end"
    with timed("t", device="cuda"):
        cuda.works = False

    (point,) = points(recorded.collect())
    assert 0 < point.raw.sum < HOUR_S


@pytest.mark.parametrize("state", ["initialized", "capturing"])
def test_a_cuda_timer_leaves_cuda_alone_before_its_first_use_in_forked_children_and_graphs(recorded, cuda, state):
    cuda.initialized, cuda.capturing = state != "initialized", state == "capturing"
    with timed("t", device="cuda"):
        pass

    (point,) = points(recorded.collect())
    assert 0 < point.raw.sum < HOUR_S
    assert cuda.events == []


def test_a_cuda_timer_without_cuda_measures_on_the_cpu(recorded):
    with timed("t", device="cuda"):
        pass

    (point,) = points(recorded.collect())
    assert point.raw.count == 1


@pytest.mark.parametrize("module", ["torch", "numpy", "opentelemetry.sdk", "grpc"])
def test_recording_plain_numbers_imports_no_framework(module):
    code = (
        "import sys, time\n"
        "from otel_ml._internal import log, meter, timing, loop, step\n"
        "from otel_ml._internal.recorder import recorder\n"
        "recorder.enabled = True\n"
        "step.set_step(1)\n"
        "with timing.timed('x', device='cuda'): log.log({'a': 1.0, 'b': [1, 2]})\n"
        "assert recorder.collect(time.time_ns(), final=True).points == 4\n"
        f"sys.exit({module!r} in sys.modules)\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
