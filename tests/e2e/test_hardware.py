"""Hardware of a whole job: several processes on one host, a service, backends; and a real Ray cluster."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.e2e.jobs import environment, processes, rows_in, until
from tests.fakes.nvml import FakeNvml

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

RANK = """
import itertools, os, time, otel_ml
from otel_ml.diagnostics import hardware

with otel_ml.init("hardware", id="job-1", exporters="jsonl,tensorboard"), hardware.start_monitor(0.5):
    for step in itertools.takewhile(lambda step: not os.path.exists("enough"), itertools.count()):
        otel_ml.set_step(step)
        otel_ml.log({"loss": 1.0})
        time.sleep(0.05)  # trains for as long as the monitor needs
"""


@pytest.fixture
def gpus(tmp_path: Path) -> FakeNvml:
    return FakeNvml(tmp_path / "nvml")


@pytest.mark.feature("N16", "better", "one sampler a host, whoever of its processes lives")
def test_a_job_of_three_processes_records_its_host_once_and_goes_on_when_the_sampler_is_killed(
    tmp_path: Path, gpus: FakeNvml
) -> None:
    """Whoever is killed, the GPUs of the host stay in the run, on one axis `time`, at no step twice."""
    base = environment(**gpus.environ, XDG_RUNTIME_DIR=tmp_path, WORLD_SIZE=3, OTEL_ML_ALLOWED_LATENESS=1000)
    commands = [([sys.executable, "-c", RANK], {**base, "RANK": str(rank)}) for rank in range(3)]

    with processes(commands, tmp_path) as started:
        folder = tmp_path / "otel-ml-runs"
        holder = until(lambda: sampler(tmp_path))
        until(lambda: samples(folder) >= 2)
        victim = next(process for process in started if process.pid == holder)
        victim.kill()
        killed = time.time()
        until(lambda: any(line.get("axis") == "time" and line["time"] > killed for line in lines(folder)))
        (tmp_path / "enough").touch()
        for process in started:
            process.wait(60)

    until(lambda: len(samples_of(folder, "hw.power")) >= 4)
    power = samples_of(folder, "hw.power")
    assert set(power.values()) == {300.0}
    assert list(power) == sorted(power)
    assert len(samples_of(folder, "hw.gpu.utilization")) == len(power)
    assert {line["attempt"] for line in lines(folder) if line.get("axis") == "time"} == {0}


def sampler(runtime: Path) -> int:
    """Return the pid that holds the GPUs' lock, as the kernel says."""
    locks = list(runtime.glob("otel-ml-*/*.hardware/gpu.lock"))
    if not locks:
        return 0
    inode = locks[0].stat().st_ino
    held = [line.split() for line in Path("/proc/locks").read_text().splitlines() if f":{inode} " in line]
    return int(held[0][4]) if held else 0


def lines(folder: Path) -> list[dict[str, Any]]:
    found = sorted(folder.glob("*/*/metrics.jsonl"))
    return rows_in(found[0]) if found else []


def samples_of(folder: Path, name: str) -> dict[int, float]:
    """Return second → value of GPU 0."""
    found: dict[int, float] = {}
    for line in lines(folder):
        values = line.get("values") or {}
        for key, value in values.items():
            if line.get("axis") == "time" and key.startswith(f"{name}/") and "/hw.id/gpu0" in key:
                assert line["step"] not in found
                found[int(line["step"])] = value
    return found


def samples(folder: Path) -> int:
    return len(samples_of(folder, "hw.power"))


RAY = """
import json, sys, time, ray
from otel_ml.diagnostics.hardware.ray_nodes import RayNodes

ray.init(num_cpus=1, log_to_driver=False)
deadline = time.monotonic() + 30
while True:
    found = {reading.name: reading.value for reading in RayNodes().read()}
    if "system.memory.limit" in found or time.monotonic() > deadline:
        break
    time.sleep(0.5)  # between two looks
print(json.dumps(found))
ray.shutdown()
"""


def test_a_real_ray_node_says_what_its_host_does(tmp_path: Path) -> None:
    command = [sys.executable, "-c", RAY]
    env = environment()
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=250, check=True)

    found = json.loads(done.stdout.splitlines()[-1])
    assert found["system.memory.limit"] == pytest.approx(psutil.virtual_memory().total, rel=0.1)
    assert 0 < found["system.memory.usage"] < found["system.memory.limit"]
    assert 0 <= found["system.cpu.utilization"] <= 1
