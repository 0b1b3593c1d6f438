"""AMD's GPUs: `amdsmi` answers as its documentation says; no AMD GPU was at hand."""

from __future__ import annotations

import sys
from enum import Enum
from types import ModuleType
from typing import Any

import pytest

from otel_ml.diagnostics import hardware
from otel_ml.diagnostics.hardware.amd import Amd
from otel_ml.testing import Capture, otel_ml_capture
from tests.waiting import eventually

__all__ = ["otel_ml_capture"]


class AmdSmiException(Exception):  # noqa: N818 - the library's name
    pass


class AmdSmiTemperatureType(Enum):
    HOTSPOT = 1


class AmdSmiTemperatureMetric(Enum):
    CURRENT = 0


class Library(ModuleType):
    """The functions that are used, with the shapes of amdsmi 6 and 7."""

    AmdSmiException = AmdSmiException
    AmdSmiTemperatureType = AmdSmiTemperatureType
    AmdSmiTemperatureMetric = AmdSmiTemperatureMetric

    def __init__(self) -> None:
        super().__init__("amdsmi")
        self.energy = 1_000_000
        self.is_lost = False

    def __getattr__(self, name: str) -> Any:
        answers = {
            "amdsmi_init": None,
            "amdsmi_shut_down": None,
            "amdsmi_get_processor_handles": ["a"],
            "amdsmi_get_gpu_device_uuid": "a0ff-74a1",
            "amdsmi_get_gpu_asic_info": {"market_name": "AMD Instinct MI300X"},
            "amdsmi_get_gpu_activity": {"gfx_activity": 80, "umc_activity": "N/A", "mm_activity": "N/A"},
            "amdsmi_get_gpu_vram_usage": {"vram_total": 196_608, "vram_used": 49_152},
            "amdsmi_get_power_info": {"current_socket_power": 540, "average_socket_power": "N/A"},
            "amdsmi_get_energy_count": {"energy_accumulator": self.energy, "counter_resolution": 15.3},
            "amdsmi_get_temp_metric": 55,
            "amdsmi_get_gpu_total_ecc_count": {"correctable_count": 0, "uncorrectable_count": 0},
        }
        if name not in answers:
            raise AttributeError(name)

        def answer(*_: object) -> Any:
            if self.is_lost:
                raise AmdSmiException("AMDSMI_STATUS_NO_DATA")
            return answers[name]

        return answer


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    found = Library()
    monkeypatch.setitem(sys.modules, "amdsmi", found)
    return found


@pytest.mark.feature("I17", "yes", "AMD by amdsmi, after its documentation")
def test_an_amd_gpu_is_recorded_under_the_same_names(library: Library) -> None:
    gpus = Amd()
    list(gpus.read())
    library.energy += 1_000_000

    found = {reading.name: reading.value for reading in gpus.read()}

    assert found["hw.gpu.utilization"] == pytest.approx(0.8)
    assert found["hw.gpu.memory.usage"] == 48 * 2**30
    assert found["hw.gpu.memory.utilization"] == pytest.approx(0.25)
    assert found["hw.power"] == 540
    assert found["hw.energy"] == pytest.approx(15.3)  # J: the resolution is in µJ
    assert found["hw.temperature"] == 55
    assert "hw.gpu.memory.activity" not in found  # "N/A" is absent, not 0
    assert gpus.facts == {"gpu0": {"vendor": "amd", "model": "AMD Instinct MI300X", "uuid": "a0ff-74a1"}}


def test_an_amd_driver_that_goes_away_is_said_once(
    library: Library, otel_ml_capture: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FAKE_NVML", raising=False)
    with hardware.start_monitor(0.02, sources="gpu"):
        eventually(lambda: [p for p in otel_ml_capture.points if p.name == "hw.power"])
        library.is_lost = True
        eventually(lambda: otel_ml_capture.notices)

    (notice,) = otel_ml_capture.notices
    assert notice.startswith("No GPU is measured from now on: amdsmi: AMDSMI_STATUS_NO_DATA.")
