"""`monitor_gpus` of the Logger's configuration: this host's hardware in the run, at the configured intervals."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from otel_ml.compat.nemo_rl import Logger, RayGpuMonitorLogger
from otel_ml.testing import Capture
from tests.fakes.nvml import FakeNvml, load
from tests.waiting import eventually

SAMPLER = "otel_ml_hardware"


@contextmanager
def monitored(folder: Path, **intervals: float) -> Iterator[Logger]:
    logger = Logger({"log_dir": str(folder), "monitor_gpus": True, "gpu_monitoring": intervals})
    try:
        yield logger
    finally:
        assert logger.gpu_monitor is not None
        logger.gpu_monitor.stop()


@pytest.mark.feature("N16", "better", "`monitor_gpus`: GPUs and host, for all backends, with NeMo RL's intervals")
def test_it_samples_gpus_and_host_at_the_configured_intervals(
    otel_ml_capture: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpus = FakeNvml(tmp_path / "nvml", count=1)
    monkeypatch.setenv("FAKE_NVML", gpus.environ["FAKE_NVML"])
    load()

    with monitored(tmp_path / "logs", collection_interval=0.05, flush_interval=1000):
        eventually(lambda: samples(otel_ml_capture)["system.memory.usage"] >= 3)
        eventually(lambda: samples(otel_ml_capture)["hw.gpu.utilization"] >= 3)

    assert {point.step for point in otel_ml_capture.points if point.name == "system.memory.usage"} == {0}


def samples(captured: Capture) -> Mapping[str, int]:
    names = ("system.memory.usage", "hw.gpu.utilization")
    return {name: sum(point.count for point in captured.points if point.name == name) for name in names}


def test_without_a_gpu_one_line_says_so_and_the_host_is_measured(otel_ml_capture: Capture, tmp_path: Path) -> None:
    load()  # and no FAKE_NVML: the library is there, the driver is not

    with monitored(tmp_path, collection_interval=0.05):
        eventually(lambda: samples(otel_ml_capture)["system.memory.usage"])

    (notice,) = (notice for notice in otel_ml_capture.notices if "GPU" in notice)
    assert notice.startswith("No GPU is measured: NVML: Driver Not Loaded")


def test_the_end_of_the_logger_is_the_end_of_its_sampler(otel_ml_capture: Capture, tmp_path: Path) -> None:
    logger = Logger({"log_dir": str(tmp_path), "monitor_gpus": True})
    assert SAMPLER in {thread.name for thread in threading.enumerate()}

    logger.finish()

    assert SAMPLER not in {thread.name for thread in threading.enumerate()}


def test_nothing_is_sampled_where_nobody_asked(otel_ml_capture: Capture, tmp_path: Path) -> None:
    logger = Logger({"log_dir": str(tmp_path), "gpu_monitoring": {"collection_interval": 1}})

    assert logger.gpu_monitor is None


def test_a_monitor_of_its_own_samples_and_says_that_names_are_others(
    otel_ml_capture: Capture, caplog: pytest.LogCaptureFixture
) -> None:
    monitor = RayGpuMonitorLogger(0.05, 1000.0, "ray", "ray/ray_step", parent_logger=None)
    monitor.start()
    try:
        eventually(lambda: samples(otel_ml_capture)["system.memory.usage"])
    finally:
        monitor.stop()

    assert not monitor.is_running
    assert SAMPLER not in {thread.name for thread in threading.enumerate()}
    assert "metric_prefix='ray'" in caplog.text
