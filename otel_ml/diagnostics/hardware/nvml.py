"""NVIDIA's GPUs, by NVML (`nvidia-ml-py`). A call reads one number of the driver; none touches a CUDA context."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator, Mapping
from typing import Any

from otel_ml.diagnostics.hardware.nvml_probes import COUNTED, GPU, PROBES
from otel_ml.diagnostics.hardware.source import Counters, Reading, SourceLostError, UnavailableError
from otel_ml.warn_once import reporter

__all__ = ["Nvml", "NvmlDevice"]


class NvmlDevice:
    """One GPU.

    Attributes:
        id: `gpu<n>`, in the driver's order.
    """

    def __init__(self, library: Any, index: int) -> None:
        self._library = library
        self.handle: Any = library.nvmlDeviceGetHandleByIndex(index)
        self.id: str = f"gpu{index}"
        self.uuid: str = str(self._optional("nvmlDeviceGetUUID") or "")
        self._probes = list(PROBES)
        self._counters = Counters()
        self._reasons: set[str] = set()

    @property
    def facts(self) -> dict[str, object]:
        """Model and identifiers."""
        memory = self._optional("nvmlDeviceGetMemoryInfo")
        found = {
            "vendor": "nvidia",
            "model": self._optional("nvmlDeviceGetName"),
            "uuid": self.uuid,
            "memory_bytes": None if memory is None else int(memory.total),
        }
        return {key: value for key, value in found.items() if value}

    def read(self) -> Iterator[Reading]:
        """Yield all readings; what the device does not have is asked for once."""
        # A copy: what the device does not have is taken out on the way.
        for probe in list(self._probes):
            try:
                values = probe(self._library, self.handle)
            except (self._library.NVMLError, AttributeError) as error:  # the latter: a package older than the call
                if not self._is_missing(error):
                    raise
                self._probes.remove(probe)
                continue
            for name, value, attributes in values:
                reading = self._reading(name, value, attributes)
                if reading is not None:
                    yield reading

    def energy(self) -> float | None:
        """Return the energy counter in joules, or None where the device has none.

        Raises:
            NVMLError: the device is gone.
        """
        try:
            return float(self._library.nvmlDeviceGetTotalEnergyConsumption(self.handle)) / 1000
        except self._library.NVMLError as error:
            if not self._is_missing(error):
                raise
            return None

    def users(self) -> list[tuple[int, int]]:
        """Return (pid, bytes) of the processes that hold memory of the device, as far as the driver tells."""
        found = self._optional("nvmlDeviceGetComputeRunningProcesses") or ()
        return [(int(item.pid), int(item.usedGpuMemory)) for item in found if item.usedGpuMemory is not None]

    def _reading(self, name: str, value: float, attributes: dict[str, str]) -> Reading | None:
        reason = attributes.get("reason")
        if reason is not None:  # a series each from the first time on: most never hold any clock down
            if value:
                self._reasons.add(reason)
            elif reason not in self._reasons:
                return None
        if name in COUNTED:
            grown = self._counters.grown((name, *attributes.values()), value)
            if grown is None:
                return None
            value = grown
        return Reading(name, value, {"hw.id": self.id, **attributes})

    def _is_missing(self, error: Any) -> bool:
        if isinstance(error, AttributeError):
            return True
        if error.value == self._library.NVML_ERROR_NO_PERMISSION:
            reporter.say("hardware-lost", "NVML refuses some readings of a GPU (no permission). They are left out.")
            return True
        return error.value in {self._library.NVML_ERROR_NOT_SUPPORTED, self._library.NVML_ERROR_FUNCTION_NOT_FOUND}

    def _optional(self, function: str) -> Any:
        try:
            return getattr(self._library, function)(self.handle)
        except self._library.NVMLError:
            return None


class Nvml:
    """All NVIDIA GPUs of the host; a `Source`.

    Raises:
        UnavailableError: no package, no driver, no GPU.
    """

    def __init__(self) -> None:
        try:
            import pynvml
        except ImportError:
            raise UnavailableError("no package nvidia-ml-py (pip install 'otel-ml[hardware]')") from None
        self._library: Any = pynvml
        try:
            pynvml.nvmlInit()
            count = pynvml.nvmlDeviceGetCount()
        except pynvml.NVMLError as error:
            raise UnavailableError(f"NVML: {error}") from None
        found = [self._opened(index) for index in range(count)]
        self.devices: list[NvmlDevice] = [device for device in found if device is not None]
        if not self.devices:
            self.close()
            raise UnavailableError(f"NVML: none of {count} GPUs can be used")
        # Of the devices that could be opened; an event of another one is of `gpu`, without a number.
        self._events = XidEvents(pynvml, {device.id: device.handle for device in self.devices})

    @property
    def facts(self) -> Mapping[str, object]:
        """Model, UUID and memory of each GPU, and the driver's version."""
        found: dict[str, object] = {device.id: device.facts for device in self.devices}
        with contextlib.suppress(self._library.NVMLError):
            found["driver"] = str(self._library.nvmlSystemGetDriverVersion())
        return found

    def read(self) -> Iterator[Reading]:
        """Yield the readings of all GPUs that answer.

        Raises:
            SourceLostError: none does anymore, or the driver is gone.
        """
        for device in list(self.devices):
            try:
                yield from device.read()
            except self._library.NVMLError as error:
                # What was read of it before the error has been yielded already.
                self.failed(device, error)
        yield from self._events.read()

    def _opened(self, index: int) -> NvmlDevice | None:
        """Return a GPU, or None (said) where it is lost or another job's."""
        try:
            return NvmlDevice(self._library, index)
        except self._library.NVMLError as error:
            reporter.say("no-hardware", f"GPU {index} is not measured: {error}. The others are.")
            return None

    def failed(self, device: NvmlDevice, error: Any) -> None:
        """Take a GPU out that is gone; another error costs one sample of it.

        Raises:
            SourceLostError: none is left.
        """
        library = self._library
        if error.value in {
            library.NVML_ERROR_UNINITIALIZED,
            library.NVML_ERROR_DRIVER_NOT_LOADED,
            library.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
        }:
            raise SourceLostError(f"NVML: {error}")
        if error.value in {library.NVML_ERROR_GPU_IS_LOST, library.NVML_ERROR_RESET_REQUIRED}:
            # The loop above goes over a copy of the list.
            self.devices.remove(device)
            if not self.devices:
                raise SourceLostError(f"NVML: {error}")
            reporter.say("hardware-lost", f"GPU {device.id} is measured no more: {error}. The others are.")
        else:
            reporter.say("hardware-lost", f"GPU {device.id} did not answer: {error}. It is asked again.")

    def close(self) -> None:
        """Give the library back."""
        with contextlib.suppress(self._library.NVMLError):
            self._library.nvmlShutdown()


class XidEvents:
    """Errors that NVIDIA's driver reports by number (XID) when they happen: those since it was asked last.

    Args:
        handles: NVML's handle of each device, by its id.
    """

    MOST = 100
    """A GPU that reports without end must not hold the sampler up."""

    def __init__(self, library: Any, handles: Mapping[str, Any]) -> None:
        self._library = library
        # A handle that an event brings is another object around the same pointer.
        self._ids = {_address(handle): device for device, handle in handles.items()}
        self._set: Any = None
        with contextlib.suppress(library.NVMLError):
            self._set = library.nvmlEventSetCreate()
        for handle in handles.values() if self._set is not None else ():
            # One that does not tell them, or not to this user, is as one that has none.
            with contextlib.suppress(library.NVMLError):
                library.nvmlDeviceRegisterEvents(handle, library.nvmlEventTypeXidCriticalError, self._set)

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
