"""Errors that NVIDIA's driver reports by number (XID) when they happen."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator, Mapping
from typing import Any

from otel_ml.diagnostics.hardware.nvml_probes import GPU
from otel_ml.diagnostics.hardware.source import Reading

__all__ = ["XidEvents"]


class XidEvents:
    """What the driver reported since it was asked last.

    Args:
        handles: NVML's handle of each device, by its id.
    """

    MOST = 100
    """A GPU that reports without end must not hold the sampler up."""

    def __init__(self, library: Any, handles: Mapping[str, Any]) -> None:
        self._library = library
        self._ids = {_address(handle): device for device, handle in handles.items()}
        self._set: Any = None
        with contextlib.suppress(library.NVMLError):
            events = library.nvmlEventSetCreate()
            for handle in handles.values():
                library.nvmlDeviceRegisterEvents(handle, library.nvmlEventTypeXidCriticalError, events)
            self._set = events

    def read(self) -> Iterator[Reading]:
        """Yield one reading an error that happened since the last call; it never waits."""
        for _ in range(self.MOST if self._set is not None else 0):
            try:
                event = self._library.nvmlEventSetWait_v2(self._set, 0)
            except self._library.NVMLError as error:
                if error.value != self._library.NVML_ERROR_TIMEOUT:
                    self._set = None
                return
            device = self._ids.get(_address(event.device), "gpu")
            yield Reading("hw.errors", 1.0, {"hw.id": device, **GPU, "error.type": f"xid_{int(event.eventData)}"})


def _address(handle: Any) -> int:
    return ctypes.cast(handle, ctypes.c_void_p).value or 0
