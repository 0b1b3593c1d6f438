"""Where the time goes: flame graphs of a worker, with its sender's thread, and of the service, each one SVG.

py-spy looks from outside, 200 times a second: what is profiled runs as it would without.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.benchmarks.child import bare_environment, sending_to
from tests.benchmarks.figures import Figure, Found, absent
from tests.benchmarks.sink import sink
from tests.benchmarks.sizes import Size
from tests.benchmarks.under_load import Load, served, service

__all__ = ["IMAGES", "NAMES", "measure"]

NAMES = {
    "worker": "a worker: the training thread and `otel_ml`'s own",
    "service": "the service under load",
    "foreign": "the service under points of other SDKs",
    "spans": "the service under spans",
}
LOADS = {
    "service": ("own", 256, {"metrics": 100, "timers": 20}),
    "foreign": ("foreign", 64, {"metrics": 100, "attributes": 2, "per_request": 5}),
    "spans": ("spans", 64, {"spans": 20, "per_request": 20}),
}
"""Kind, ranks and options of what the service is profiled under; of the last two as in `throughput`."""

IMAGES = Path(__file__).resolve().parents[2] / "docs" / "images" / "performance"
PER_SECOND = 200
STEP_S = 0.005


def measure(size: Size) -> Found:
    """Draw all; the figures say how many samples there are."""
    py_spy = shutil.which("py-spy", path=sysconfig.get_path("scripts"))
    if py_spy is None:
        return Found({name: absent("samples", "no py-spy (pip install py-spy)") for name in NAMES})
    with tempfile.TemporaryDirectory(prefix="otel-ml-bench-") as folder:
        with sink() as url:
            command = [sys.executable, "-m", "tests.benchmarks.profiles", str(size.profile_s + 4)]
            env = bare_environment(**sending_to(url))
            worker = subprocess.Popen(command, env=env, cwd=folder, stdout=subprocess.PIPE)
            assert worker.stdout is not None
            worker.stdout.readline()  # imports are over
            with drawn(py_spy, worker.pid, "worker", size.profile_s):
                pass
            worker.kill()
            worker.communicate()
        for name, (kind, ranks, options) in LOADS.items():
            with service() as one:
                assert one.process is not None
                with drawn(py_spy, one.process.pid, name, size.profile_s):
                    served(Load(kind, ranks, size.profile_s + 2, options), one)
    return Found({name: Figure(_samples(IMAGES / f"{name}.svg"), "samples", better="neither") for name in NAMES})


@contextmanager
def drawn(py_spy: str, pid: int, name: str, seconds: float) -> Iterator[None]:
    """Profile a process for so long, from the start of the block; wait for it at its end."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    image = IMAGES / f"{name}.svg"
    command = [
        py_spy,
        "record",
        "--pid",
        str(pid),
        "--output",
        str(image),
        "--duration",
        str(round(seconds)),
        "--threads",
    ]
    looking = subprocess.Popen([*command, "--rate", str(PER_SECOND)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        yield
    finally:
        said, _ = looking.communicate(timeout=seconds + 60)
    if looking.returncode:
        raise RuntimeError(f"py-spy could not look: {said.decode()}")
    image.write_text(_without_names(image.read_text(), name))


def train(seconds: float) -> None:
    """Record steps of 100 metrics and 20 timers, 5 ms apart."""
    import otel_ml

    values = {f"metric_{index}": float(index) for index in range(100)}
    otel_ml.init("bench")
    print("training", flush=True)
    for step in range(int(seconds / STEP_S)):
        otel_ml.set_step(step)
        otel_ml.log(values)
        for _ in range(20):
            with otel_ml.timed("phase"):
                pass
        time.sleep(STEP_S)


def _samples(image: Path) -> float:
    """Return how many samples a flame graph was drawn from."""
    [counted] = re.findall(r"<title>all \(([\d,]+) samples, 100%\)</title>", image.read_text())
    return float(counted.replace(",", ""))


def _without_names(svg: str, title: str) -> str:
    """Leave out where this checkout and this Python are, and numbers that differ between runs."""
    svg = re.sub(r"thread \(\d+\)", "thread", svg)
    svg = re.sub(r'(<text id="title"[^>]*>)[^<]*', rf"\g<1>{title}", svg)
    for folder in (Path(__file__).resolve().parents[2], Path(sys.prefix), Path(sys.base_prefix)):
        svg = svg.replace(f"{folder}/", "")
    return svg


if __name__ == "__main__":
    train(float(sys.argv[1]))
