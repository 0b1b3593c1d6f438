"""GPUs by the real pynvml, against a library of ours in the place of NVIDIA's."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import otel_ml
from otel_ml.diagnostics import hardware
from otel_ml.testing import Capture, capture, otel_ml_capture
from tests.e2e.jobs import ROOT, environment
from tests.fakes.nvml import FakeNvml, load
from tests.waiting import eventually

__all__ = ["otel_ml_capture"]

FAST = 0.02


@pytest.fixture
def gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    load()
    fake = FakeNvml(tmp_path / "nvml")
    monkeypatch.setenv("FAKE_NVML", str(fake.folder))
    return fake


def means(capture: Capture, name: str) -> dict[str, float]:
    """Return GPU → newest mean of its samples, other attributes than the usual ones appended."""
    found: dict[str, float] = {}
    for point in capture.points:
        if point.name == name:
            more = [str(v) for k, v in point.attributes.items() if k not in {"host.name", "hw.id", "hw.type"}]
            found["/".join([str(point.attributes["hw.id"]), *more])] = point.mean
    return found


def total(capture: Capture, name: str, **attributes: str) -> float:
    wanted = {key.replace("_", "."): value for key, value in attributes.items()}.items()
    return sum(p.value for p in capture.points if p.name == name and wanted <= p.attributes.items())


def seen(capture: Capture, name: str) -> Callable[[], dict[str, float]]:
    return lambda: means(capture, name)


@pytest.mark.feature("N16", "better", "memory, power, energy, temperature, clocks, throttling and errors, too")
@pytest.mark.feature("I17", "yes", "by a thread of one process a host; stops safely")
def test_every_number_of_a_gpu_is_recorded_in_the_units_of_the_semantic_conventions(
    gpus: FakeNvml, otel_ml_capture: Capture
) -> None:
    gpus.device(1, utilization=10, throttle=0x4 | 0x1)

    with hardware.start_monitor(FAST, sources="gpu"):
        eventually(seen(otel_ml_capture, "hw.gpu.utilization"))

    assert means(otel_ml_capture, "hw.gpu.utilization") == {"gpu0": pytest.approx(0.7), "gpu1": pytest.approx(0.1)}
    assert means(otel_ml_capture, "hw.gpu.memory.activity")["gpu0"] == pytest.approx(0.4)
    assert means(otel_ml_capture, "hw.gpu.memory.usage")["gpu0"] == 20 * 2**30
    assert means(otel_ml_capture, "hw.gpu.memory.limit")["gpu0"] == 80 * 2**30
    assert means(otel_ml_capture, "hw.gpu.memory.utilization")["gpu0"] == pytest.approx(0.25)
    assert means(otel_ml_capture, "hw.power")["gpu0"] == pytest.approx(300.0)
    assert means(otel_ml_capture, "hw.gpu.power.limit")["gpu0"] == 700.0
    assert means(otel_ml_capture, "hw.temperature")["gpu0"] == 61.0
    clocks = means(otel_ml_capture, "hw.gpu.clock")
    assert (clocks["gpu0/sm"], clocks["gpu0/memory"]) == (1980.0, 2619.0)
    throttled = means(otel_ml_capture, "hw.gpu.throttled")
    assert throttled == {"gpu0": 0.0, "gpu1": 1.0, "gpu1/sw_power_cap": 1.0}
    assert {point.axis for point in otel_ml_capture.points} == {"time"}


@pytest.mark.feature("N17", "better", "model, UUID, memory and driver as params")
def test_the_model_of_each_gpu_is_a_parameter(gpus: FakeNvml, otel_ml_capture: Capture) -> None:
    with hardware.start_monitor(FAST, sources="gpu"):
        eventually(lambda: [event for event in otel_ml_capture.events if event.kind == "ml.params"])

    (params,) = [event.body for event in otel_ml_capture.events if event.kind == "ml.params"]
    (host,) = params["hardware"].values()
    assert host["driver"] == "555.42"
    assert host["gpu1"] == {
        "vendor": "nvidia",
        "model": "NVIDIA Test 80GB",
        "uuid": "GPU-00000001-aaaa",
        "memory_bytes": 80 * 2**30,
    }


@pytest.mark.feature("M10", "better", "by the counter; per device, host and run")
def test_energy_is_what_the_counter_grew_and_the_run_has_its_sum(gpus: FakeNvml, otel_ml_capture: Capture) -> None:
    gpus.device(1, energy=None)

    with hardware.start_monitor(FAST, sources="gpu"):
        eventually(seen(otel_ml_capture, "hw.power"))
        gpus.device(0, energy=1_000_000 + 2_500_000)  # mJ
        eventually(lambda: total(otel_ml_capture, "hw.energy", hw_id="gpu0") == 2500.0)

    assert total(otel_ml_capture, "hw.energy", hw_id="gpu1") == 0.0
    assert not means(otel_ml_capture, "hw.energy").get("gpu1")
    (summary,) = [event.body for event in otel_ml_capture.events if event.kind == "ml.summary"]
    assert list(summary.values()) == [2500.0]
    assert next(iter(summary)).startswith("hw.energy.total/host.name/")


def test_a_counter_that_begins_anew_counts_nothing_wrong(gpus: FakeNvml, otel_ml_capture: Capture) -> None:
    with hardware.start_monitor(FAST, sources="gpu"):
        eventually(seen(otel_ml_capture, "hw.power"))
        gpus.device(0, energy=500_000)
        sampled_again(otel_ml_capture)
        gpus.device(0, energy=600_000)
        eventually(lambda: total(otel_ml_capture, "hw.energy", hw_id="gpu0") == 100.0)


def sampled_again(capture: Capture) -> None:
    before = sum(p.count for p in capture.points if p.name == "hw.power")
    eventually(lambda: sum(p.count for p in capture.points if p.name == "hw.power") > before + 4)


def test_memory_errors_and_xid_errors_are_counted_by_kind(gpus: FakeNvml, otel_ml_capture: Capture) -> None:
    with hardware.start_monitor(FAST, sources="gpu"):
        eventually(seen(otel_ml_capture, "hw.power"))
        gpus.device(0, ecc_corrected=3)
        gpus.device(1, xid=79)
        eventually(lambda: total(otel_ml_capture, "hw.errors", error_type="corrected") == 3.0)
        eventually(lambda: total(otel_ml_capture, "hw.errors", error_type="xid_79", hw_id="gpu1") == 1.0)

    assert total(otel_ml_capture, "hw.errors", error_type="xid_79") == 1.0


def test_a_gpu_that_does_not_tell_its_xid_errors_keeps_no_other_from_it(
    gpus: FakeNvml, otel_ml_capture: Capture
) -> None:
    gpus.device(0, events="!4", xid=31)

    with hardware.start_monitor(FAST, sources="gpu"):
        gpus.device(1, xid=79)
        eventually(lambda: total(otel_ml_capture, "hw.errors", error_type="xid_79", hw_id="gpu1") == 1.0)

    assert total(otel_ml_capture, "hw.errors", error_type="xid_31") == 0.0


def test_a_number_that_a_gpu_does_not_have_is_absent_and_the_rest_is_there(
    gpus: FakeNvml, otel_ml_capture: Capture
) -> None:
    gpus.device(0, power=None, temperature="!3", clock_sm="!4")

    with hardware.start_monitor(FAST, sources="gpu"):
        eventually(seen(otel_ml_capture, "hw.gpu.clock"))

    assert set(means(otel_ml_capture, "hw.power")) == {"gpu1"}
    assert set(means(otel_ml_capture, "hw.temperature")) == {"gpu1"}
    assert set(means(otel_ml_capture, "hw.gpu.clock")) == {"gpu0/memory", "gpu1/sm", "gpu1/memory"}
    assert [notice for notice in otel_ml_capture.notices if "no permission" in notice]


def test_a_reason_that_held_the_clock_down_is_followed_from_then_on(gpus: FakeNvml, otel_ml_capture: Capture) -> None:
    gpus.device(0, throttle=0x40)
    with hardware.start_monitor(FAST, sources="gpu"):
        eventually(lambda: means(otel_ml_capture, "hw.gpu.throttled").get("gpu0/hw_thermal") == 1.0)
        gpus.device(0, throttle=0)
        eventually(lambda: means(otel_ml_capture, "hw.gpu.throttled").get("gpu0/hw_thermal") == 0.0)

    assert set(means(otel_ml_capture, "hw.gpu.throttled")) == {"gpu0", "gpu1", "gpu0/hw_thermal"}


def test_a_gpu_that_is_lost_is_said_once_and_the_other_goes_on(gpus: FakeNvml, otel_ml_capture: Capture) -> None:
    with hardware.start_monitor(FAST, sources="gpu"):
        eventually(seen(otel_ml_capture, "hw.power"))
        gpus.device(0, utilization="!15")
        eventually(lambda: otel_ml_capture.notices)
        sampled_again(otel_ml_capture)

    (notice,) = otel_ml_capture.notices
    assert "gpu0" in notice
    assert "lost" in notice.lower()


def test_a_gpu_of_another_job_is_said_and_those_of_ours_are_measured(gpus: FakeNvml, otel_ml_capture: Capture) -> None:
    gpus.device(0, handle="!4")  # no permission, as where a scheduler hands out GPUs one by one

    with hardware.start_monitor(FAST, sources="gpu"):
        eventually(seen(otel_ml_capture, "hw.power"))

    assert set(means(otel_ml_capture, "hw.power")) == {"gpu1"}
    (notice,) = otel_ml_capture.notices
    assert notice.startswith("GPU 0 is not measured: ")


def test_a_host_whose_gpus_are_all_others_has_none(gpus: FakeNvml, otel_ml_capture: Capture) -> None:
    gpus.device(0, handle="!4")
    gpus.device(1, handle="!15")

    with hardware.start_monitor(FAST, sources="gpu"):
        eventually(lambda: len(otel_ml_capture.notices) == 3)

    assert "No GPU is measured: NVML: none of 2 GPUs can be used" in otel_ml_capture.notices[-1]


def test_a_driver_that_goes_away_in_mid_run_is_said_once_and_training_goes_on(
    gpus: FakeNvml, otel_ml_capture: Capture
) -> None:
    with hardware.start_monitor(FAST):
        eventually(seen(otel_ml_capture, "hw.power"))
        gpus.lose_driver(1)
        eventually(lambda: otel_ml_capture.notices)
        before = sum(point.count for point in otel_ml_capture.points if point.name == "system.memory.usage")
        eventually(lambda: sum(p.count for p in otel_ml_capture.points if p.name == "system.memory.usage") > before + 2)
        otel_ml.log({"loss": 1.0}, step=0)

    (notice,) = otel_ml_capture.notices
    assert notice.startswith("No GPU is measured from now on: NVML:")
    assert otel_ml_capture.values("loss") == [1.0]


def test_what_was_read_while_one_run_ended_and_another_began_is_of_neither(gpus: FakeNvml) -> None:
    temperature = gpus.folder / "0.temperature"

    def writer() -> int | None:
        try:
            return os.open(temperature, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:  # nobody reads it yet
            return None

    with hardware.start_monitor(FAST, sources="gpu"):
        with capture(id="01ARYZ6S41TSV4RRFFQ69G5FAV") as first:  # an id that was made in 2016
            eventually(seen(first, "hw.temperature"))
            temperature.unlink()
            os.mkfifo(temperature)  # to open it waits for a writer
            driver = eventually(writer) or 0
        with capture() as second:
            os.write(driver, b"99")
            os.close(driver)
            gpus.device(0, temperature=61)
            eventually(seen(second, "hw.temperature"))

    assert max(point.step or 0 for point in second.points) < 60
    assert means(second, "hw.temperature")["gpu0"] == 61


def test_without_a_driver_one_line_says_so_and_the_host_is_measured(otel_ml_capture: Capture) -> None:
    load()  # and no FAKE_NVML: the library is there, the driver is not

    with hardware.start_monitor(FAST):
        eventually(lambda: [p for p in otel_ml_capture.points if p.name == "system.memory.usage"])

    (notice,) = otel_ml_capture.notices
    assert notice.startswith("No GPU is measured: NVML: Driver Not Loaded; no package amdsmi")


def test_a_process_finds_the_library_as_the_dynamic_linker_does(tmp_path: Path) -> None:
    """As on a real host: nothing of ours in the process, `libnvidia-ml.so.1` on the linker's path."""
    fake = FakeNvml(tmp_path / "nvml", count=1)
    fake.device(0, process_pid=4242, process_memory=2**30)
    program = "from otel_ml.diagnostics import hardware; print(hardware.diagnose('after model'))"

    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**environment(), **fake.environ, "CUDA_VISIBLE_DEVICES": "GPU-00000000"},
        capture_output=True,
        text=True,
        check=True,
    )

    assert "device 0 is gpu0 GPU-00000000-aaaa, used 21.5 GB of 85.9 GB, pid 4242 uses 1.07 GB" in done.stdout


@pytest.mark.feature("N30", "yes", "`hardware.diagnose()` and `hardware.MemoryStages`")
def test_a_diagnosis_says_which_gpus_the_process_may_use(
    gpus: FakeNvml, otel_ml_capture: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")

    line = hardware.diagnose("start")

    assert "device 0 is gpu1 GPU-00000001-aaaa" in line
    assert "gpu0" not in line
    (said,) = [event for event in otel_ml_capture.events if event.kind == "hardware.diagnosis"]
    assert said.attributes["line"] == line


def test_a_diagnosis_without_a_gpu_says_why() -> None:
    load()

    assert "no GPU (NVML: Driver Not Loaded" in hardware.diagnose("start")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, [0, 1, 2]),
        ({"CUDA_VISIBLE_DEVICES": ""}, []),
        ({"CUDA_VISIBLE_DEVICES": "2,0"}, [2, 0]),
        ({"CUDA_VISIBLE_DEVICES": "GPU-bb02,0"}, [1, 0]),
        ({"CUDA_VISIBLE_DEVICES": "gpu-c"}, [2]),
        ({"CUDA_VISIBLE_DEVICES": "0,7,1"}, [0]),
        ({"CUDA_VISIBLE_DEVICES": "MIG-GPU-cc03/1/0,MIG-GPU-cc03/2/0"}, [2]),
        ({"CUDA_VISIBLE_DEVICES": "MIG-11112222"}, []),
        ({"ROCR_VISIBLE_DEVICES": "2,1", "HIP_VISIBLE_DEVICES": "1"}, [1]),
        ({"HIP_VISIBLE_DEVICES": "1"}, [1]),
    ],
    ids=str,
)
def test_visible_devices_are_found_by_number_and_uuid(given: dict[str, str], expected: list[int]) -> None:
    uuids = ["GPU-aa01", "GPU-bb02", "GPU-cc03"]

    assert hardware.visible_devices(uuids, given) == expected


@pytest.mark.parametrize(
    ("given", "of_amd", "of_nvidia"),
    [
        ({"HIP_VISIBLE_DEVICES": "1", "CUDA_VISIBLE_DEVICES": "2"}, [1], [2]),
        ({"HIP_VISIBLE_DEVICES": "", "CUDA_VISIBLE_DEVICES": "2"}, [2], [2]),
        ({"HIP_VISIBLE_DEVICES": "1"}, [1], [0, 1, 2]),
        ({"ROCR_VISIBLE_DEVICES": "1"}, [1], [0, 1, 2]),
    ],
    ids=str,
)
def test_each_vendor_reads_its_own_variables(given: dict[str, str], of_amd: list[int], of_nvidia: list[int]) -> None:
    uuids = ["GPU-aa01", "GPU-bb02", "GPU-cc03"]

    assert hardware.visible_devices(uuids, given, vendor="amd") == of_amd
    assert hardware.visible_devices(uuids, given, vendor="nvidia") == of_nvidia


def test_a_variable_of_amd_hides_no_gpu_of_nvidia(gpus: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "1")

    assert "gpu0" in hardware.diagnose("start")


def test_a_uuid_that_several_devices_begin_with_names_none() -> None:
    assert hardware.visible_devices(["GPU-a1", "GPU-a2"], {"CUDA_VISIBLE_DEVICES": "GPU-a"}) == []


def test_a_wrong_setting_of_the_monitor_is_refused_with_all_that_is_wrong() -> None:
    with pytest.raises(otel_ml.ConfigError) as caught:
        hardware.Monitor(0, sources=("gpus",))

    assert "interval=): expected seconds above 0, got 0" in str(caught.value)
    assert "Did you mean 'gpu'?" in str(caught.value)


def test_the_documentation_lists_every_measure() -> None:
    page = (ROOT / "docs" / "diagnostics" / "hardware.md").read_text(encoding="utf-8")

    rows = {f"| `{m.name}` | {m.unit} | {m.reduce} | {m.description} |" for m in hardware.MEASURES}
    assert rows - set(page.splitlines()) == set()


def test_samples_of_one_flush_interval_become_one_row(gpus: FakeNvml, otel_ml_capture: Capture) -> None:
    with hardware.start_monitor(FAST, flush_interval=3600, sources="gpu"):
        eventually(lambda: sum(p.count for p in otel_ml_capture.points if p.name == "hw.power") > 6)

    assert {point.step for point in otel_ml_capture.points} == {0}


def test_whatever_is_recorded_stands_in_the_table_of_measures(gpus: FakeNvml, otel_ml_capture: Capture) -> None:
    with hardware.start_monitor(FAST):
        eventually(seen(otel_ml_capture, "hw.power"))
        sampled_again(otel_ml_capture)

    recorded = {(point.name, point.reduction) for point in otel_ml_capture.points}
    assert recorded <= {(m.name, m.reduce) for m in hardware.MEASURES}
    assert len(recorded) > 15
