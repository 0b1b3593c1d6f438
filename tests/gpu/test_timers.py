"""Times of a device are what its own events say, and belong to the step in which they were taken."""

from __future__ import annotations

import pytest
import torch

import otel_ml
from otel_ml.compat.forge import Tracer
from otel_ml.diagnostics import hardware, memory_dump
from tests.gpu.conftest import Job, StartJob
from tests.gpu.devices import Device

STEPS = 10
BUSY_S = 0.02


def time_of(run: Job, name: str) -> str:
    """Return the published name of a timer, which says its device."""
    return next(found for found in run.read if found.startswith(f"time/{name}"))


def test_a_timer_says_what_events_around_it_say(device: Device, job: StartJob) -> None:
    measure = device.moment()

    def region() -> None:
        with otel_ml.timed("region", device=device.kind):
            device.busy(BUSY_S)

    with job() as run:
        device.busy(1e-3)
        device.synchronize()
        want = [measure(region) for _ in otel_ml.steps(range(STEPS))]
        device.synchronize()

    for inside, around in zip(run[time_of(run, "region")], want, strict=True):
        assert inside > BUSY_S / 2
        assert (1 - device.precision) * around() < inside < 1.001 * around()


def test_timers_within_timers_and_on_two_streams_keep_their_own_time(device: Device, job: StartJob) -> None:
    with job() as run:
        for _ in otel_ml.steps(range(STEPS)):
            with otel_ml.timed("outer", device=device.kind):
                device.busy(BUSY_S)
                with otel_ml.timed("inner", device=device.kind):
                    device.busy(BUSY_S)
                with device.other_stream(), otel_ml.timed("beside", device=device.kind):
                    device.busy(BUSY_S / 4)
            device.synchronize()

    outer, inner, beside = (run[time_of(run, name)] for name in ("outer", "inner", "beside"))
    assert len(outer) == len(inner) == len(beside) == STEPS
    for whole, part, other in zip(outer, inner, beside, strict=True):
        assert BUSY_S / 2 < part < whole
        assert 0 < other < whole


def test_a_tracer_of_torchforge_gives_each_step_its_own_times(device: Device, job: StartJob) -> None:
    with job() as run:
        for _ in otel_ml.steps(range(4)):
            tracer = Tracer("work", timer="gpu" if device.kind == "cuda" else "cpu")
            tracer.start()
            device.busy(BUSY_S)
            tracer.step("a")
            device.busy(2 * BUSY_S)
            tracer.step("b")
            tracer.stop()
        device.synchronize()

    assert run.steps("work/a/duration_avg_s") == run.steps("work/b/duration_avg_s") == [0, 1, 2, 3]
    for short, long in zip(run["work/a/duration_avg_s"], run["work/b/duration_avg_s"], strict=True):
        assert short > BUSY_S / 2
        assert long > BUSY_S


@pytest.mark.gpu
def test_an_operation_says_what_memory_it_took_and_gave_back(job: StartJob) -> None:
    with job() as run:
        for _ in otel_ml.steps(range(3)):
            with otel_ml.operation("train/step") as operation:
                with operation.onload():
                    weights = torch.zeros(256 * 2**18, device="cuda")
                scratch = torch.zeros(512 * 2**18, device="cuda")
                del scratch
                with operation.offload():
                    del weights

    most = [run[name] for name in run.read if name.startswith("memory/train/step/") and "/max_allocated/" in name]
    assert max(max(values) for values in most) >= 768 * 2**20
    assert all(len(values) == 3 for values in most)


@pytest.mark.gpu
def test_the_monitor_the_energy_and_the_probe_see_the_device(cuda: Device, job: StartJob) -> None:
    with job() as run, hardware.start_monitor(interval=0.1), hardware.Energy() as energy:
        probe = hardware.Probe(every=2, device="cuda")
        for _ in otel_ml.steps(range(8)):
            cuda.busy(0.2)
            cuda.synchronize()
            probe.step()
            energy.lap()

    assert any(name.startswith("hw.gpu.utilization") for name in run.read)
    assert energy.total is None or energy.total > 0
    assert any("hardware_test" in name for name in run.read)


@pytest.mark.gpu
def test_training_whose_memory_runs_out_records_what_it_recorded_before(job: StartJob) -> None:
    with job() as run:
        memory_dump.record_memory_history()
        memory_dump.dump_on_out_of_memory()
        for step in otel_ml.steps(range(4)):
            otel_ml.log({"loss": torch.full((), float(step), device="cuda")})
            with pytest.raises(torch.cuda.OutOfMemoryError):
                torch.zeros(10**13, device="cuda")
        torch.cuda.memory._record_memory_history(None)

    assert run["loss"] == [0, 1, 2, 3]
