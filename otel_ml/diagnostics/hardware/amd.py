"""AMD's GPUs, by `amdsmi`, which comes with ROCm."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from otel_ml.diagnostics.hardware.nvml_probes import GPU, memory_values
from otel_ml.diagnostics.hardware.source import Counters, Reading, SourceLostError, UnavailableError
from otel_ml.warn_once import reporter

__all__ = ["Amd", "AmdDevice"]

_MIB = 2**20

_Values = list[tuple[str, Any, dict[str, str]]]


class AmdDevice:
    """One GPU."""

    def __init__(self, library: Any, handle: Any, index: int) -> None:
        self._library = library
        self._handle = handle
        self.id: str = f"gpu{index}"
        self.uuid: str = str(self._asked(library.amdsmi_get_gpu_device_uuid) or "")
        self._counters = Counters()
        self._probes = [self._activity, self._memory, self._power, self._energy, self._temperature, self._errors]

    @property
    def facts(self) -> dict[str, object]:
        """Model and identifiers."""
        asic = self._asked(self._library.amdsmi_get_gpu_asic_info) or {}
        found = {"vendor": "amd", "model": asic.get("market_name"), "uuid": self.uuid}
        return {key: value for key, value in found.items() if value}

    def read(self) -> Iterator[Reading]:
        """Yield all readings that the device has.

        Raises:
            AmdSmiException: nothing could be read.
        """
        failed: list[Exception] = []
        for probe in self._probes:
            try:
                values = probe()
            except (self._library.AmdSmiException, KeyError) as error:
                failed.append(error)
                continue
            for name, value, attributes in values:
                reading = self._reading(name, value, attributes)
                if reading is not None:
                    yield reading
        # One that fails alone is something that this device does not have.
        if len(failed) == len(self._probes):
            raise failed[0]

    def energy(self) -> float | None:
        """Return the energy counter in joules, or None where the device has none."""
        return _joules(self._asked(self._library.amdsmi_get_energy_count))

    def _reading(self, name: str, value: object, attributes: dict[str, str]) -> Reading | None:
        if isinstance(value, bool) or not isinstance(value, (int, float)):  # "N/A"
            return None
        number: float | None = float(value)
        if name in {"hw.energy", "hw.errors"}:
            number = self._counters.grown((name, *attributes.values()), float(value))
        return None if number is None else Reading(name, number, {"hw.id": self.id, **attributes})

    def _activity(self) -> _Values:
        found = self._library.amdsmi_get_gpu_activity(self._handle)
        return [
            ("hw.gpu.utilization", _share(found["gfx_activity"]), {}),
            ("hw.gpu.memory.activity", _share(found["umc_activity"]), {}),
        ]

    def _memory(self) -> _Values:
        found = self._library.amdsmi_get_gpu_vram_usage(self._handle)
        return list(memory_values(float(found["vram_used"]) * _MIB, float(found["vram_total"]) * _MIB))

    def _power(self) -> _Values:
        found = self._library.amdsmi_get_power_info(self._handle)
        # What there is differs by product and by version of ROCm; the others are "N/A".
        drawn = [found.get(key) for key in ("current_socket_power", "socket_power", "average_socket_power")]
        return [("hw.power", next((value for value in drawn if isinstance(value, (int, float))), None), GPU)]

    def _energy(self) -> _Values:
        return [("hw.energy", _joules(self._library.amdsmi_get_energy_count(self._handle)), GPU)]

    def _temperature(self) -> _Values:
        library = self._library
        kind, now = library.AmdSmiTemperatureType.HOTSPOT, library.AmdSmiTemperatureMetric.CURRENT
        return [("hw.temperature", library.amdsmi_get_temp_metric(self._handle, kind, now), {})]

    def _errors(self) -> _Values:
        found = self._library.amdsmi_get_gpu_total_ecc_count(self._handle)
        return [
            ("hw.errors", found["correctable_count"], {**GPU, "error.type": "corrected"}),
            ("hw.errors", found["uncorrectable_count"], {**GPU, "error.type": "uncorrected"}),
        ]

    def _asked(self, function: Callable[[Any], Any]) -> Any:
        try:
            return function(self._handle)
        except self._library.AmdSmiException:
            return None


class Amd:
    """All AMD GPUs of the host; a `Source`.

    Raises:
        UnavailableError: no package, no driver, no GPU.
    """

    def __init__(self) -> None:
        try:
            import amdsmi
        except (ImportError, OSError, KeyError):  # it looks for ROCm's library while it is imported
            raise UnavailableError("no package amdsmi, which comes with ROCm") from None
        self._library: Any = amdsmi
        try:
            amdsmi.amdsmi_init()
            handles = amdsmi.amdsmi_get_processor_handles()
        except amdsmi.AmdSmiException as error:
            raise UnavailableError(f"amdsmi: {error}") from None
        self.devices: list[AmdDevice] = [AmdDevice(amdsmi, handle, index) for index, handle in enumerate(handles)]
        if not self.devices:
            self.close()
            raise UnavailableError("amdsmi: no GPU")

    @property
    def facts(self) -> Mapping[str, object]:
        """Model and UUID of each GPU."""
        return {device.id: device.facts for device in self.devices}

    def read(self) -> Iterator[Reading]:
        """Yield the readings of all GPUs that answer.

        Raises:
            SourceLostError: none did.
        """
        failed = None
        silent = 0
        for device in self.devices:
            try:
                yield from device.read()
            except self._library.AmdSmiException as error:
                # It is asked again at the next sample: none is taken out.
                failed, silent = error, silent + 1
        if silent == len(self.devices):
            raise SourceLostError(f"amdsmi: {failed}")
        if failed is not None:
            reporter.say(
                "hardware-lost", f"{silent} of {len(self.devices)} GPUs do not answer: {failed}. The others do."
            )

    def close(self) -> None:
        """Give the library back."""
        try:
            self._library.amdsmi_shut_down()
        except self._library.AmdSmiException:
            return


def _share(percent: object) -> float | None:
    return float(percent) / 100 if isinstance(percent, (int, float)) else None


def _joules(found: Any) -> float | None:
    try:
        # The resolution is in microjoules; the counter was called `power` before ROCm 6.
        count = found.get("energy_accumulator", found.get("power"))
        return float(count) * float(found["counter_resolution"]) / 1e6
    except (AttributeError, KeyError, TypeError, ValueError):
        return None
