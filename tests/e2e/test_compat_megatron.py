"""Megatron's loop on two ranks, and how its runs end, read back from every backend."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from otel_ml.compat.megatron import across_ranks_string
from tests.e2e.jobs import ROOT, answer_of, environment, processes, scalars_in, the_run_in, torchrun

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

ITERATIONS = range(1, 21)


@pytest.mark.feature("M36", "better", "names are made allowed once, the same in every backend")
def test_the_example_on_two_ranks_is_one_run_with_the_times_of_both(tmp_path: Path) -> None:
    command = torchrun(2, ROOT / "examples" / "migrate" / "megatron_loop.py")
    env = environment()

    done = subprocess.run(
        [str(part) for part in command], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=200, check=False
    )

    assert done.returncode == 0, done.stderr
    run = the_run_in(tmp_path / "otel-ml-runs")
    stored = scalars_in("jsonl", run)
    slowest, fastest = stored["forward-backward-time"], stored["forward-backward-time/min"]
    assert stored["lm_loss"] == pytest.approx({iteration: 1 / iteration for iteration in ITERATIONS})
    assert all(slowest[i] >= fastest[i] >= 0.002 and slowest[i] >= 0.004 for i in ITERATIONS)
    assert set(stored["samples/lm_loss"]) == {8 * iteration for iteration in ITERATIONS}
    assert stored["grad-norm"] == dict.fromkeys(ITERATIONS, 0.5)
    other = scalars_in("tensorboard", run)
    assert other["forward-backward-time"] == pytest.approx(slowest, rel=1e-6)
    assert other["lm_loss"] == pytest.approx(stored["lm_loss"], rel=1e-6)

    title, line = str(across_ranks_string(run, world_size=2)).splitlines()
    assert title == "(min, max) time across ranks (ms):"
    low, high = (float(part) for part in line.rpartition("(")[2].rstrip(")").split(", "))
    assert (low, high) == pytest.approx((fastest[20] * 1e3, slowest[20] * 1e3), abs=0.006)
    assert "(min, max) time across ranks (ms), rank 1 alone (1 of 2):" in done.stdout
    assert "iteration       20/      20 | consumed samples:          160 |" in done.stdout
    assert "Starting job" in (tmp_path / "checkpoints" / "progress.txt").read_text()
    assert answer_of("jsonl", run)["artifacts"]


ENDING = """
import sys, time
from otel_ml.compat.megatron import LoggerConfig, TrainingLog, start

config = LoggerConfig(tensorboard_dir="tb")
start(config)
TrainingLog(config).log(1, {"loss": 1.0})
if sys.argv[1] == "crash":
    raise RuntimeError("out of memory")
print("ready", flush=True)
while True:
    time.sleep(0.1)  # trains until it is ended
"""


@pytest.mark.feature("M26", "yes", "failed after a crash, killed after SIGTERM")
@pytest.mark.parametrize(("how", "status"), [("crash", "failed"), ("signal", "killed")])
def test_the_run_says_how_it_ended(tmp_path: Path, how: str, status: str) -> None:
    with processes([([sys.executable, "-c", ENDING, how], environment())], tmp_path) as [training]:
        if how == "signal":
            assert training.stdout is not None
            assert "ready\n" in iter(training.stdout.readline, "")
            training.send_signal(signal.SIGTERM)
        training.wait(60)

    run = the_run_in(tmp_path / "otel-ml-runs")
    assert answer_of("jsonl", run)["status"] == status
