"""What NVML is asked about one GPU, a function each: what a device does not have is then asked for once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["COUNTED", "GPU", "PROBES", "Probe", "Values", "memory_values"]

Values = list[tuple[str, float, dict[str, str]]]
"""Name, value, attributes."""

Probe = Callable[[Any, Any], Values]
"""Of the library and a device's handle."""

GPU = {"hw.type": "gpu"}
"""Required by the semantic conventions where other hardware has a metric of the same name."""


def _utilization(n: Any, handle: Any) -> Values:
    found = n.nvmlDeviceGetUtilizationRates(handle)
    return [("hw.gpu.utilization", found.gpu / 100, {}), ("hw.gpu.memory.activity", found.memory / 100, {})]


def _memory(n: Any, handle: Any) -> Values:
    found = n.nvmlDeviceGetMemoryInfo(handle)
    return memory_values(float(found.used), float(found.total))


def memory_values(used: float, total: float) -> Values:
    """Return the three readings of device memory, in bytes."""
    values: Values = [("hw.gpu.memory.usage", used, {}), ("hw.gpu.memory.limit", total, {})]
    return [*values, ("hw.gpu.memory.utilization", used / total, {})] if total else values


def _power(n: Any, handle: Any) -> Values:
    # NVML has milliwatts, and millijoules below.
    return [("hw.power", n.nvmlDeviceGetPowerUsage(handle) / 1000, GPU)]


def _power_limit(n: Any, handle: Any) -> Values:
    return [("hw.gpu.power.limit", n.nvmlDeviceGetEnforcedPowerLimit(handle) / 1000, {})]


def _energy(n: Any, handle: Any) -> Values:
    return [("hw.energy", n.nvmlDeviceGetTotalEnergyConsumption(handle) / 1000, GPU)]


def _temperature(n: Any, handle: Any) -> Values:
    # NVML is about to replace the one call by the other; old drivers have only the old one, new ones will not.
    try:
        found = n.nvmlDeviceGetTemperatureV(handle, n.NVML_TEMPERATURE_GPU)
    except (AttributeError, n.NVMLError):
        found = n.nvmlDeviceGetTemperature(handle, n.NVML_TEMPERATURE_GPU)
    return [("hw.temperature", float(found), {})]


def _sm_clock(n: Any, handle: Any) -> Values:
    return [("hw.gpu.clock", float(n.nvmlDeviceGetClockInfo(handle, n.NVML_CLOCK_SM)), {"hw.gpu.domain": "sm"})]


def _memory_clock(n: Any, handle: Any) -> Values:
    return [("hw.gpu.clock", float(n.nvmlDeviceGetClockInfo(handle, n.NVML_CLOCK_MEM)), {"hw.gpu.domain": "memory"})]


_REASONS = {
    "sw_power_cap": 0x4,
    "hw_slowdown": 0x8,
    "sw_thermal": 0x20,
    "hw_thermal": 0x40,
    "hw_power_brake": 0x80,
}
"""NVML's bits for what holds a clock down; being idle and chosen clocks are none of it."""


def _throttled(n: Any, handle: Any) -> Values:
    bits = n.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
    held = {reason: bool(bits & bit) for reason, bit in _REASONS.items()}
    by_reason: Values = [("hw.gpu.throttled", float(holds), {"reason": reason}) for reason, holds in held.items()]
    return [("hw.gpu.throttled", float(any(held.values())), {}), *by_reason]


def _corrected(n: Any, handle: Any) -> Values:
    return _ecc(n, handle, n.NVML_MEMORY_ERROR_TYPE_CORRECTED, "corrected")


def _uncorrected(n: Any, handle: Any) -> Values:
    return _ecc(n, handle, n.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, "uncorrected")


def _ecc(n: Any, handle: Any, kind: int, called: str) -> Values:
    # Since the driver was loaded; the other counter is kept over reboots, and tells nothing of this run.
    count = float(n.nvmlDeviceGetTotalEccErrors(handle, kind, n.NVML_VOLATILE_ECC))
    return [("hw.errors", count, {**GPU, "error.type": called})]


PROBES: tuple[Probe, ...] = (
    _utilization,
    _memory,
    _power,
    _power_limit,
    _energy,
    _temperature,
    _sm_clock,
    _memory_clock,
    _throttled,
    _corrected,
    _uncorrected,
)

COUNTED = frozenset({"hw.energy", "hw.errors"})
