"""Values that come later. A device is stood in for by events the test fires; the tensors are torch's own."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from otel_ml._internal.device_tensor import Deferred, DeviceTensor, Weighted
from otel_ml._internal.messages.recorder import recorder
from otel_ml._internal.record.log import log, record
from otel_ml._internal.series.buffer import RECORDS
from otel_ml._internal.series.definition import DEFINITIONS
from otel_ml._internal.steps.axes import current_step
from otel_ml._internal.steps.step import set_step
from otel_ml.wire.reduction import Reduction
from tests.unit.otel_ml.record.decoded import manifests, points


class Event:
    """A device event: done when the test says so."""

    def __init__(self) -> None:
        self.done = False

    def query(self) -> bool:
        return self.done


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
    from otel_ml._internal.series.definition import define_metric

    define_metric("lr", reduce="last")
    append("lr", DeviceTensor(torch.tensor(1.0), event), time_ns=1)
    record("lr", 2.0)
    first = recorded.collect()
    event.done = True
    second = recorded.collect()

    times = [(point.raw.time_unix_nano, point.value) for batch in (first, second) for point in points(batch)]
    assert max(times)[1] == 2.0


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


@pytest.mark.parametrize("module", ["torch", "numpy", "opentelemetry.sdk", "grpc"])
def test_recording_plain_numbers_imports_no_framework(module):
    code = (
        "import sys, time\n"
        "from otel_ml._internal.record import log, meter\n"
        "from otel_ml._internal.steps import step\n"
        "from otel_ml._internal.timers import step_loop as loop, timing\n"
        "from otel_ml._internal.messages.recorder import recorder\n"
        "recorder.enabled = True\n"
        "step.set_step(1)\n"
        "with timing.timed('x', device='cuda'): log.log({'a': 1.0, 'b': [1, 2]})\n"
        "assert recorder.collect(time.time_ns(), final=True).points == 4\n"
        f"sys.exit({module!r} in sys.modules)\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
