"""The GPUs of this host, whoever made them."""

from __future__ import annotations

from otel_ml.diagnostics.hardware.amd import Amd, AmdDevice
from otel_ml.diagnostics.hardware.nvml import Nvml, NvmlDevice
from otel_ml.diagnostics.hardware.source import UnavailableError
from otel_ml.diagnostics.hardware.visible_gpus import visible_devices

__all__ = ["Gpus", "of_this_process", "open_gpus"]

Gpus = Nvml | Amd


def open_gpus() -> Gpus:
    """Return the first library that finds a GPU.

    Raises:
        UnavailableError: none does; the text says why for each.
    """
    reasons: list[str] = []
    # A host has GPUs of one maker as a rule: those of the first library that finds some.
    for library in (Nvml, Amd):
        try:
            return library()
        except UnavailableError as error:
            reasons.append(str(error))
    raise UnavailableError("; ".join(reasons))


def of_this_process(gpus: Gpus) -> list[NvmlDevice | AmdDevice]:
    """Return the GPUs that this process may use, in the order it numbers them."""
    devices: list[NvmlDevice | AmdDevice] = list(gpus.devices)
    uuids = [device.uuid for device in devices]
    places = visible_devices(uuids, vendor="nvidia" if isinstance(gpus, Nvml) else "amd")
    return [devices[place] for place in places]
