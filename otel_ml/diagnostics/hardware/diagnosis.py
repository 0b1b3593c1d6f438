"""One line on the GPUs of this process: which they are, who uses their memory, what torch holds of it."""

from __future__ import annotations

import os
import socket
from typing import Any

from otel_ml._internal.events.event_calls import event
from otel_ml.diagnostics.current_run import current_run
from otel_ml.diagnostics.device_memory import held_by_torch
from otel_ml.diagnostics.hardware.gpu import of_this_process, open_gpus
from otel_ml.diagnostics.hardware.nvml import NvmlDevice
from otel_ml.diagnostics.hardware.process_memory import process_memory
from otel_ml.diagnostics.hardware.source import UnavailableError
from otel_ml.quantities import size

__all__ = ["diagnose"]


def diagnose(label: str) -> str:
    """Return one line for the log, and record it as the event `hardware.diagnosis`. Never raises; asks the driver.

    Args:
        label: where in the program this is: `after model`.
    """
    try:
        line = _line(label)
    except Exception as error:  # noqa: BLE001 - a question about memory must not end what runs out of it
        line = f"[{label}] nothing can be said of the hardware: {type(error).__name__}: {error}"
    event("hardware.diagnosis", {"label": label, "line": line})
    return line


def _line(label: str) -> str:
    run = current_run()
    parts = [f"[{label}] host={socket.gethostname()} pid={os.getpid()}" + (f" rank={run.rank}" if run else "")]
    memory = process_memory()
    if memory is not None:
        parts.append(f"process rss {size(memory.rss)}")
    try:
        gpus = open_gpus()
    except UnavailableError as error:
        return " | ".join([*parts, f"no GPU ({error})"])
    try:
        held = held_by_torch()
        for number, device in enumerate(of_this_process(gpus)):
            parts.append(_device(number, device, held.get(number)))
    finally:
        gpus.close()
    return " | ".join(parts)


def _device(number: int, device: Any, held: tuple[int, int] | None) -> str:
    # Those with `hw.id` alone, as memory has them: others are of a kind, such as corrected errors.
    readings = {reading.name: reading.value for reading in device.read() if len(reading.attributes) == 1}
    used, limit = readings.get("hw.gpu.memory.usage"), readings.get("hw.gpu.memory.limit")
    said = [f"device {number} is {device.id} {device.uuid}"]
    if used is not None and limit is not None:
        said.append(f"used {size(used)} of {size(limit)}")
    if held is not None:
        said.append(f"torch allocated {size(held[0])}, reserved {size(held[1])}")
    if isinstance(device, NvmlDevice):
        said += [f"pid {pid} uses {size(taken)}" for pid, taken in device.users()]
    return ", ".join(said)
