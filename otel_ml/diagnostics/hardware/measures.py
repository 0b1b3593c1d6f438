"""What is recorded of the hardware: one table, which the documentation prints.

Names and units are those of OpenTelemetry's semantic conventions (hardware, system, process) where they have one.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["MEASURES", "Measure"]


@dataclass(frozen=True, slots=True)
class Measure:
    """One metric of the hardware.

    Attributes:
        unit: in UCUM.
        reduce: how the samples of one row of the axis become one value.
    """

    name: str
    unit: str
    reduce: str
    description: str


MEASURES = (
    Measure("hw.gpu.utilization", "1", "mean", "Share of the time in which a kernel ran."),
    Measure("hw.gpu.memory.activity", "1", "mean", "Share of the time in which device memory was read or written."),
    Measure("hw.gpu.memory.usage", "By", "mean", "Device memory in use, by all processes."),
    Measure("hw.gpu.memory.limit", "By", "last", "Device memory there is."),
    Measure("hw.gpu.memory.utilization", "1", "mean", "Usage over limit."),
    Measure("hw.gpu.power.limit", "W", "last", "Power the device may draw."),
    Measure("hw.gpu.clock", "MHz", "mean", "Clock of the multiprocessors (`hw.gpu.domain` sm) and of memory."),
    Measure("hw.gpu.throttled", "1", "mean", "Share of the samples in which the clock was held down; by reason too."),
    Measure("hw.power", "W", "mean", "Power drawn."),
    Measure("hw.energy", "J", "sum", "Energy used since the sample before, by the device's own counter."),
    Measure("hw.temperature", "Cel", "mean", "Temperature of the chip."),
    Measure("hw.errors", "{error}", "sum", "Errors of memory and XID errors since the sample before; by kind."),
    Measure("system.cpu.utilization", "1", "mean", "Share of the host's processors in use."),
    Measure("system.memory.usage", "By", "mean", "Memory of the host that is not available."),
    Measure("system.memory.limit", "By", "last", "Memory of the host."),
    Measure("system.memory.utilization", "1", "mean", "Usage over limit."),
    Measure("process.count", "{process}", "mean", "Processes of the job on the host, each once."),
    Measure("process.cpu.utilization", "1", "mean", "Share of the host's processors that they use."),
    Measure("process.memory.usage", "By", "mean", "Their resident memory; pages they share count for each."),
    Measure("process.memory.virtual", "By", "mean", "Their virtual memory."),
)
