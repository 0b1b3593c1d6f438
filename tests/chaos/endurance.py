"""A long run, and whether it holds more at its end than before: `python -m tests.chaos.endurance --steps 1000000`.

One rank records; the service is a process of its own, and every 500 steps the rank waits until that has caught up: what
is measured is what both hold of steps that are over. Prints the resident memory of both, and the bytes of the files
that are not records, in twenty lines over the run. Fails where the last quarter is above the second.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from urllib.request import urlopen

import psutil

from tests.e2e.jobs import environment, until
from tests.ports import free_port
from tests.surroundings import forget

RANK = """
import sys, otel_ml
steps = int(sys.argv[1])
with otel_ml.init("endurance", role="trainer"):
    for step in range(steps):
        otel_ml.set_step(step)
        otel_ml.log({"loss": 1.0 / (step + 1), "lr": 0.1, "norm": float(step % 7)})
        with otel_ml.timed("forward"):
            pass
        if step % 500 == 499:
            otel_ml.flush(timeout=60)
            print(step + 1, flush=True)
            sys.stdin.readline()
"""

MIB = 2**20
ROOM_MIB = 32
"""What an interpreter's allocator may keep without anything growing."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.endurance", description=__doc__)
    parser.add_argument("--steps", type=int, default=1_000_000)
    given = parser.parse_args()
    forget()
    with tempfile.TemporaryDirectory(prefix="otel-ml-endurance-") as folder:
        curve = measured(Path(folder), given.steps)
    second, last = curve[5:10], curve[15:]
    grown = [statistics.median(column) for column in zip(*last, strict=True)]
    before = [statistics.median(column) for column in zip(*second, strict=True)]
    fine = all(now <= then + ROOM_MIB for now, then in zip(grown, before, strict=True))
    print(f"second quarter {before}, last quarter {grown} MiB: {'flat' if fine else 'it grows'}")
    return 0 if fine else 1


def measured(folder: Path, steps: int) -> list[tuple[float, float, float]]:
    """Run, and return (worker, service, files) in MiB, twenty times."""
    port = free_port()
    serve = [sys.executable, "-m", "otel_ml_service", "serve", "--to", "jsonl", "--http", f"127.0.0.1:{port}"]
    env = environment(OTEL_ML_DIR=folder / "runs", OTEL_ML_LISTEN_GRPC="127.0.0.1:0", OTEL_ML_CONSOLE="off")
    service = subprocess.Popen(serve, env=env, stderr=subprocess.DEVNULL)
    rank = subprocess.Popen(
        [sys.executable, "-c", RANK, str(steps)],
        env={**env, "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}", "OTEL_ML_EXPERIMENT_ID": "endurance"},
        cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    curve = []
    try:
        assert rank.stdin is not None
        assert rank.stdout is not None
        print("     steps  worker  service  other files   (MiB)", flush=True)
        for number, line in enumerate(rank.stdout, start=1):
            until(lambda: settled(port), seconds=120)
            rank.stdin.write("\n")
            rank.stdin.flush()
            if number % max(1, steps // 500 // 20):
                continue
            found = memory(rank.pid), memory(service.pid), other_files(folder)
            curve.append(found)
            print(f"{int(line):10} {found[0]:7.1f} {found[1]:8.1f} {found[2]:12.1f}", flush=True)
        assert rank.wait(60) == 0
    finally:
        for process in (rank, service):
            process.terminate()
            process.wait(60)
    return curve


def memory(pid: int) -> float:
    return float(psutil.Process(pid).memory_info().rss) / MIB


def settled(port: int) -> bool:
    """Whether the service has decided and delivered everything that it has acknowledged."""
    with urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    waiting = [line.split() for line in lines if line.startswith(("otel_ml_journal_bytes", "otel_ml_lag"))]
    return len(waiting) > 1 and all(float(value) == 0 for _, value in waiting)


def other_files(folder: Path) -> float:
    """Return what lies in the folder besides the records and what exporters wrote of them."""
    kept = {"run.db", "run.db-wal", "metrics.jsonl", "spans.jsonl"}
    files = [Path(top) / name for top, _, names in os.walk(folder) for name in names if name not in kept]
    return sum(path.stat().st_size for path in files if path.exists()) / MIB


if __name__ == "__main__":
    sys.exit(main())
