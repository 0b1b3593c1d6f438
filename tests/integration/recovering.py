"""Jobs that are killed with their service, and `otel-ml recover` after them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

import otel_ml
from otel_ml.wire.rendezvous import Service
from tests.integration.worker_process import environment, start

pytestmark = pytest.mark.long


PROGRAM = [sys.executable, "-m", "otel_ml_service"]


KILLED = """
    import os, signal, time, otel_ml
    from pathlib import Path
    from otel_ml.wire.spool_format import read_spool

    def spooled(name):
        paths = Path(os.environ["XDG_RUNTIME_DIR"]).glob("*/*/spool/*.spool")
        return any(name in frame.payload for path in paths for frame in read_spool(path).frames)

    otel_ml.init("exp", id="one")
    otel_ml.log({"before": 1.0}, step=0)
    assert otel_ml.flush(20)
    print("delivered", flush=True)
    input()
    otel_ml.log({"after": 2.0}, step=1)
    while not spooled(b"after"):
        time.sleep(0.01)  # between two looks
    os.kill(os.getpid(), signal.SIGKILL)
"""


def kill_with_its_service(folder: Path, told: dict[str, str]) -> None:
    """Kill the service of a job once it has the first step, and the job once it has spooled the second."""
    process = start(KILLED, environment(folder, told), folder)
    assert process.stdout is not None
    assert process.stdout.readline() == "delivered\n"
    [announced] = folder.glob("run/*/*/service.json")
    os.kill(Service.from_json(announced.read_text()).pid, signal.SIGKILL)
    process.communicate("go\n", timeout=30)


def otel_ml_command(environ: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*PROGRAM, *arguments], env=environ, capture_output=True, text=True, check=False, timeout=100)


def written(folder: Path) -> Mapping[str, object]:
    """Return what the run's file has by now."""
    run_folder = folder / "runs" / "exp" / "one"
    return otel_ml.read(run_folder) if (run_folder / "metrics.jsonl").exists() else {}


@contextmanager
def serving(environ: dict[str, str], port: int) -> Iterator[subprocess.Popen[str]]:
    command = [*PROGRAM, "serve", "--to", "jsonl", "--http", f"127.0.0.1:{port}", "--grpc", "127.0.0.1:0"]
    process = subprocess.Popen(command, env=environ, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        assert any("OTLP/HTTP on" in line for line in process.stderr)
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
