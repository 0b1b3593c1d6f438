"""Operations: time and memory of work that loads and offloads its states."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
import torch

import otel_ml
from otel_ml._internal.devices.cuda_calls import CUDA
from otel_ml.diagnostics.device_memory import report_memory
from otel_ml.diagnostics.offload import state_offload_manager, state_offload_manger
from otel_ml.testing import Capture, otel_ml_capture

__all__ = ["otel_ml_capture"]

GIB = 2**30


class Allocator:
    """`torch.cuda` as an operation sees it: the first of eight devices of 80 GiB; a test decides on what it holds."""

    def __init__(self) -> None:
        self.held = self.peak = self.asked = 0
        self.devices = {0}
        self.error: str | None = None

    def take(self, gib: int) -> None:
        self.held += gib * GIB
        self.peak = max(self.peak, self.held)

    def is_initialized(self) -> bool:
        return True

    def device_count(self) -> int:
        return 8

    def memory(self, device: int) -> dict[str, dict[str, dict[str, int]]]:
        self.asked += 1
        if self.error is not None:
            raise RuntimeError(self.error)
        return {
            "allocated_bytes": {"all": {"current": self.held, "peak": self.peak}},
            "reserved_bytes": {"all": {"current": self.held + 2 * GIB, "peak": self.peak + 2 * GIB}},
        }

    def reset_peaks(self, device: int) -> None:
        self.peak = self.held

    def get_device_properties(self, device: int) -> SimpleNamespace:
        return SimpleNamespace(total_memory=80 * GIB)


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[Allocator]:
    found = Allocator()
    native = {
        "_cuda_getDevice": lambda: 0,
        "_cuda_hasPrimaryContext": lambda device: device in found.devices,
        "_cuda_memoryStats": found.memory,
        "_cuda_resetPeakMemoryStats": found.reset_peaks,
    }
    for name, stand_in in native.items():
        monkeypatch.setattr(torch._C, name, stand_in)
    for name in ("is_initialized", "device_count", "get_device_properties"):
        monkeypatch.setattr(torch.cuda, name, getattr(found, name))
    CUDA.forget()
    yield found
    CUDA.forget()


class Strategy:
    """States of 30 GiB."""

    def __init__(self, device: Allocator | None = None) -> None:
        self.device = device
        self.loaded_with: dict[str, object] | None = None

    def load_states(self, **kwargs: object) -> None:
        self.loaded_with = kwargs
        if self.device is not None:
            self.device.take(30)

    def offload_states(self) -> None:
        if self.device is not None:
            self.device.take(-30)


def count(capture: Capture, name: str) -> int:
    """Return how often it was recorded, over all flushes."""
    return sum(point.count for point in capture.points if point.name == name)


def recorded(capture: Capture) -> dict[str, float]:
    return {point.name: point.value for point in capture.points}


@pytest.mark.feature("R9", "better", "always recorded, and in the span tree")
@pytest.mark.feature("F12", "yes", "nested, sync and async, without waiting for the device")
def test_the_phases_of_an_operation_add_up_to_its_total(otel_ml_capture: Capture) -> None:
    otel_ml.set_step(4)
    with otel_ml.operation("actor_train/train_step") as op:
        with op.onload():
            time.sleep(0.002)  # what is measured
        time.sleep(0.002)  # what is measured
        with op.offload():
            time.sleep(0.002)  # what is measured

    names = [f"time/actor_train/train_step/{phase}" for phase in ("total", "execute", "onload", "offload")]
    points = [point for point in otel_ml_capture.points if point.name.startswith("time/")]
    assert sorted(point.name for point in points) == sorted(names)
    assert {(point.step, point.reduction) for point in points} == {(4, "sum>max")}
    total, *phases = (op.values[name] for name in names)
    assert min(phases) >= 0.002
    assert sum(phases) == pytest.approx(total, rel=1e-9)
    assert len(otel_ml_capture.spans) == 3


def test_phases_that_did_not_happen_are_absent(otel_ml_capture: Capture) -> None:
    with otel_ml.operation("critic/compute_values"):
        pass

    names = set(recorded(otel_ml_capture))
    assert {name for name in names if name.startswith("time/")} == {
        "time/critic/compute_values/total",
        "time/critic/compute_values/execute",
    }


@pytest.mark.feature("R11", "yes", "rss and vms of the process at start and end")
def test_the_memory_of_the_process_is_recorded_and_that_of_a_device_absent_where_there_is_none(
    otel_ml_capture: Capture,
) -> None:
    with otel_ml.operation("score"):
        pass

    memory = {name: value for name, value in recorded(otel_ml_capture).items() if name.startswith("memory/")}
    assert set(memory) == {f"memory/cpu/score/{point}/{kind}" for point in ("start", "end") for kind in ("rss", "vms")}
    assert memory["memory/cpu/score/end/vms"] > memory["memory/cpu/score/end/rss"] > 2**20
    assert {p.reduction for p in otel_ml_capture.points if p.name in memory} == {"max"}


@pytest.mark.feature("R10", "better", "always recorded; peaks of nested operations are kept apart")
def test_four_snapshots_of_a_device_are_taken(device: Allocator, otel_ml_capture: Capture) -> None:
    device.take(1)
    with otel_ml.operation("a") as op:
        with op.onload():
            device.take(30)
        device.take(20)
        device.take(-20)
        with op.offload():
            device.take(-30)

    found = {n.removeprefix("memory/a/"): v for n, v in recorded(otel_ml_capture).items() if n.startswith("memory/a/")}
    assert {name: value / GIB for name, value in found.items() if "allocated/" in name} == {
        "start/offload/allocated/0": 1,
        "start/offload/max_allocated/0": 1,
        "start/onload/allocated/0": 31,
        "start/onload/max_allocated/0": 31,
        "end/onload/allocated/0": 31,
        "end/onload/max_allocated/0": 51,
        "end/offload/allocated/0": 1,
        "end/offload/max_allocated/0": 51,
    }
    assert found["end/onload/max_allocated_frac/0"] == 51 / 80
    assert found["end/onload/max_reserved_frac/0"] == 53 / 80
    assert found["end/offload/reserved/0"] == 3 * GIB


def test_an_operation_asks_the_allocator_twice_and_each_phase_once_more(
    device: Allocator, otel_ml_capture: Capture
) -> None:
    with otel_ml.operation("plain"):
        pass
    assert device.asked == 2

    with otel_ml.operation("phases") as op:
        with op.onload():
            pass
        with op.offload():
            pass
    assert device.asked == 2 + 4


def test_each_device_that_the_process_uses_is_measured_and_no_other_one(
    device: Allocator, otel_ml_capture: Capture
) -> None:
    with otel_ml.operation("a"):
        device.devices.add(3)

    names = {name.removeprefix("memory/a/") for name in recorded(otel_ml_capture) if "/max_allocated/" in name}
    assert names == {f"{point}/onload/max_allocated/{device}" for point, device in (("end", 0), ("end", 3))} | {
        "start/offload/max_allocated/0"
    }


def test_an_operation_inside_another_does_not_hide_its_peak(device: Allocator, otel_ml_capture: Capture) -> None:
    with otel_ml.operation("outer"):
        device.take(50)
        device.take(-50)
        with otel_ml.operation("inner"):
            device.take(10)
            device.take(-10)

    found = recorded(otel_ml_capture)
    assert found["memory/outer/end/onload/max_allocated/0"] == 50 * GIB
    assert found["memory/inner/end/onload/max_allocated/0"] == 10 * GIB


def test_a_device_in_error_costs_the_numbers_and_not_the_training(
    device: Allocator, otel_ml_capture: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    device.error = "CUDA error: device-side assert triggered"

    with otel_ml.operation("a") as op, op.onload():
        pass

    assert "time/a/total" in recorded(otel_ml_capture)
    (notice,) = otel_ml_capture.notices
    assert notice.startswith("No memory of an operation is measured: CUDA error")


def test_a_torch_that_is_only_half_there_costs_the_numbers_and_not_the_training(
    otel_ml_capture: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace())  # as while it is imported, or after that failed
    otel_ml.set_step(0)

    with otel_ml.operation("train") as op:
        with op.onload():
            pass
        with op.offload():
            pass
    report_memory()

    assert "time/train/total" in {point.name for point in otel_ml_capture.points}
    assert "No memory of an operation is measured" in otel_ml_capture.notices[0]


def test_a_decorated_function_is_measured_at_every_call_sync_or_async(otel_ml_capture: Capture) -> None:
    @otel_ml.operation("double")
    def double(x: int) -> int:
        return 2 * x

    @otel_ml.operation("later")
    async def later(x: int) -> int:
        return x + 1

    otel_ml.set_step(0)
    assert [double(2), double(3), asyncio.run(later(1))] == [4, 6, 2]

    assert count(otel_ml_capture, "time/double/total") == 2
    assert count(otel_ml_capture, "time/later/total") == 1


def test_what_an_operation_raises_goes_through_and_is_measured(otel_ml_capture: Capture) -> None:
    with pytest.raises(KeyError), otel_ml.operation("fails") as op, op.onload():
        raise KeyError("x")

    assert {"time/fails/total", "time/fails/execute", "time/fails/onload"} <= set(recorded(otel_ml_capture))


def test_without_a_run_an_operation_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OTEL_ML_DIR")  # asks for a run, which the first record of a process begins
    with otel_ml.operation("idle") as op, op.onload():
        pass

    assert "time/idle/total" not in op.values


def test_an_operation_that_is_entered_again_begins_anew(otel_ml_capture: Capture) -> None:
    op = otel_ml.operation("again")
    with op, op.offload():
        pass
    with op:
        pass

    assert "time/again/offload" not in op.values
    assert count(otel_ml_capture, "time/again/total") == 2


@pytest.mark.feature("R12", "better", "a level for each operation, not one switch for all")
def test_an_operation_above_the_level_measures_nothing(otel_ml_capture: Capture, device: Allocator) -> None:
    with otel_ml.operation("fine", level=2) as op, op.onload():
        pass
    with otel_ml.operation("coarse"):
        pass

    assert op.values == {}
    assert otel_ml_capture.points
    assert not [point.name for point in otel_ml_capture.points if "fine" in point.name]


def test_a_name_or_level_that_is_none_is_said_and_the_code_runs(otel_ml_capture: Capture) -> None:
    with otel_ml.operation(""):
        pass

    with otel_ml.operation("a", level="high"):  # type: ignore[arg-type]
        pass

    name, level = otel_ml_capture.notices
    assert name.startswith("operation(): expected a name such as 'actor_train/train_step', got ''.")
    assert level.startswith("operation('a'): expected a level that is a whole number, got 'high'. It is 1.")


@pytest.mark.feature("R9", "yes", "ROLL's own call")
def test_rolls_manager_loads_runs_and_offloads_and_fills_its_metrics(
    device: Allocator, otel_ml_capture: Capture
) -> None:
    strategy, metrics = Strategy(device), {"loss": 1.0}

    with state_offload_manger(strategy, metrics, "actor_train/train_step", True, {"include": ["model"]}):
        assert device.held == 30 * GIB

    assert strategy.loaded_with == {"include": ["model"]}
    assert device.held == 0
    assert metrics["memory/actor_train/train_step/end/onload/allocated/0"] == 30.0  # GiB, as ROLL has it
    assert metrics["memory/actor_train/train_step/end/onload/max_allocated_frac/0"] == 30 / 80
    assert {f"time/actor_train/train_step/{n}" for n in ("total", "execute", "onload", "offload")} < set(metrics)
    assert 0 < metrics["memory/cpu/actor_train/train_step/end/rss"] < 100
    assert otel_ml_capture.points == []  # whoever logs the metrics records them: once


def test_rolls_manager_without_metrics_records_into_the_run(otel_ml_capture: Capture) -> None:
    with state_offload_manager(Strategy(), None, "critic/train_step", is_offload_states=False):
        pass

    assert {"time/critic/train_step/total", "time/critic/train_step/onload"} < set(recorded(otel_ml_capture))
    assert "time/critic/train_step/offload" not in recorded(otel_ml_capture)
