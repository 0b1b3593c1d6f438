"""What torch's allocator holds of each device: Megatron's memory keys, and what operations take snapshots of.

The allocator keeps these numbers on the host: reading them neither asks the device nor waits for it. Without a device,
or before training has used it, they are absent, not 0.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from otel_ml._internal.devices.cuda_calls import CUDA, CudaCalls
from otel_ml._internal.record.log import log
from otel_ml.warn_once import reporter

__all__ = [
    "MEMORY_KEYS",
    "DeviceMemory",
    "current_memory",
    "device_memory",
    "held_by_torch",
    "report_memory",
    "reset_peak",
    "reset_peaks",
]

MEMORY_KEYS: Mapping[str, str] = {
    "allocated_bytes.all.current": "mem-allocated-bytes",
    "active_bytes.all.current": "mem-active-bytes",
    "inactive_split_bytes.all.current": "mem-inactive-bytes",
    "reserved_bytes.all.current": "mem-reserved-bytes",
    "allocated_bytes.all.peak": "mem-max-allocated-bytes",
    "active_bytes.all.peak": "mem-max-active-bytes",
    "inactive_split_bytes.all.peak": "mem-max-inactive-bytes",
    "reserved_bytes.all.peak": "mem-max-reserved-bytes",
    "num_alloc_retries": "mem-alloc-retires",
    "allocation.all.current": "mem-allocated-count",
}
"""Key of `torch.cuda.memory_stats()` → name that Megatron reports it under; its spelling of `retires` is kept."""

_GB = 1e9
_DIGITS = 5


class DeviceMemory(NamedTuple):
    """Bytes of one device; the peaks are since `reset_peaks()`."""

    allocated: int
    reserved: int
    max_allocated: int
    max_reserved: int
    total: int


def device_memory() -> dict[int, DeviceMemory]:
    """Return device → what torch's allocator of this process holds of it; nothing where it holds nothing.

    Examples:
        >>> device_memory()  # on a machine without a GPU
        {}
    """
    found: dict[int, DeviceMemory] = {}
    cuda = CUDA.calls or CUDA.find()
    if cuda is None:
        return found
    current = cuda.device()
    for device in cuda.devices:
        if device == current or cuda.has_context(device):  # most processes see all of a host, and use one
            memory = _held(cuda, device)
            # A context alone holds nothing of the allocator's: such a device has no numbers.
            if memory.max_reserved or device == current:
                found[device] = memory
    return found


def _held(cuda: CudaCalls, device: int) -> DeviceMemory:
    numbers = cuda.memory(device)
    allocated, reserved = numbers["allocated_bytes"]["all"], numbers["reserved_bytes"]["all"]
    return DeviceMemory(
        allocated["current"], reserved["current"], allocated["peak"], reserved["peak"], cuda.total(device)
    )


def current_memory() -> DeviceMemory | None:
    """Return what is held of the current device; None without one."""
    cuda = CUDA.calls or CUDA.find()
    return None if cuda is None else _held(cuda, cuda.device())


def reset_peak() -> None:
    """Let the peaks of the current device begin anew."""
    cuda = CUDA.calls
    if cuda is not None:
        cuda.reset_peaks(cuda.device())


def held_by_torch() -> dict[int, tuple[int, int]]:
    """Return device → (allocated, reserved) bytes."""
    return {device: (memory.allocated, memory.reserved) for device, memory in device_memory().items()}


def reset_peaks(devices: Iterable[int]) -> None:
    """Let the peaks of some devices begin anew."""
    cuda = CUDA.calls
    if cuda is not None:
        for device in devices:
            cuda.reset_peaks(device)


def report_memory(memory_keys: Mapping[str, str] | None = None, *, step: int | None = None) -> dict[str, float]:
    """Record the allocator's numbers of the current device as `memory/<name>`, the largest of all ranks; return them.

    As in Megatron, names that hold `bytes` are reported as gigabytes (10⁹ bytes, five digits). The maximum is over all
    ranks, so over the pipeline too, and needs no collective.

    Args:
        memory_keys: key of `torch.cuda.memory_stats()` → name; `MEMORY_KEYS` by default.
        step: instead of the current one.

    Returns:
        What was recorded; nothing without a device.
    """
    try:
        cuda = _cuda()
        if cuda is None:
            return {}
        # Inside of the `try`, as a device in error raises here.
        found = reported(cuda.memory_stats(), MEMORY_KEYS if memory_keys is None else memory_keys)
    except Exception as error:  # noqa: BLE001 - a device in error must not end training here; training will say it
        reporter.say("no-hardware", f"No memory of the device is measured: {error}. Everything else goes on.")
        return {}
    log({f"memory/{name}": value for name, value in found.items()}, step=step, reduce="max")
    return found


def reported(stats: Mapping[str, Any], memory_keys: Mapping[str, str]) -> dict[str, float]:
    """Return name → number as Megatron writes it.

    Examples:
        >>> reported({"reserved_bytes.all.current": 12345678901}, {"reserved_bytes.all.current": "mem-reserved-bytes"})
        {'mem-reserved-gigabytes': 12.346}
    """
    found: dict[str, float] = {}
    for key, name in memory_keys.items():
        if key not in stats:
            near = difflib.get_close_matches(key, stats, 1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            reporter.say("memory-key", f"report_memory(): torch's allocator has no number {key!r}.{hint}")
        elif "bytes" in name:
            found[name.replace("bytes", "gigabytes")] = float(f"{stats[key] / _GB:.{_DIGITS}g}")
        else:
            found[name] = float(stats[key])
    return found


def _cuda() -> Any:
    """Return `torch.cuda` where this process uses a device; it is not made to (see `Cuda.find()`)."""
    torch = sys.modules.get("torch")
    return torch.cuda if torch is not None and torch.cuda.is_initialized() else None
