"""A CUDA device that hangs or fails costs its values, and nothing else."""

from __future__ import annotations

import pytest
import torch

from otel_ml._internal.messages.recorder import recorder
from otel_ml._internal.record.log import log, record
from otel_ml._internal.steps.step import set_step
from tests.fake_cuda import FakeCuda
from tests.unit.otel_ml.device.batch_of_values import values


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


def test_a_stream_that_torch_has_not_made_is_not_used_after_the_call(recorded, cuda: FakeCuda) -> None:
    external = torch.cuda.Stream()
    external.stream_id = 0x7F00  # as of a pointer, which an external stream has
    with torch.cuda.stream(external):
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
