"""Start a launcher, and look at what it has left: runs, values, statuses, processes."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import orjson

from tests.launchers.cases import Case
from tests.ports import free_port
from tests.surroundings import is_the_shells
from tests.waiting import eventually

__all__ = ["Found", "launch", "oracle"]

ROOT = Path(__file__).parents[2]
STEPS = 5


@dataclass(frozen=True)
class Found:
    """What a run has: how it ended, how many lives it had, and by step the sums over its ranks."""

    statuses: tuple[str, ...]
    attempts: frozenset[int]
    sums: Mapping[int, tuple[float, float]]


def oracle(case: Case) -> list[Found]:
    """Return what is right."""
    sums = (float(case.ranks), float(sum(range(case.ranks))))
    return [Found(("finished",), frozenset({0}), dict.fromkeys(range(STEPS), sums))] * case.runs


def launch(case: Case, folder: Path, environ: Mapping[str, str]) -> list[Found]:
    """Run it in a folder of its own, wait until no process of it is left, and return its runs."""
    runs, work = folder / "runs", folder / "work"
    work.mkdir(parents=True)
    mine = {**environ, "OTEL_ML_DIR": str(runs), "PYTHONPATH": str(ROOT), "RAY_TRAIN_V2_ENABLED": "1", **_QUIET}
    command = case.command.format(folder=work, port=free_port())
    _run(command, mine, work, runs)
    eventually(lambda: not _left(runs), timeout=60)
    return [_found(path) for path in sorted(runs.glob("*/*/metrics.jsonl"))]


def _run(command: str, environ: Mapping[str, str], work: Path, runs: Path) -> None:
    """Run a line of bash to its end; what has not ended in time is killed, as Ray's processes outlive their parent."""
    out = work.with_name("out")
    with out.open("wb") as file:
        process = subprocess.Popen(["bash", "-c", command], env=environ, cwd=work, stdout=file, stderr=file)
        try:
            code = process.wait(MOST_S)
        except subprocess.TimeoutExpired:
            code = f"none after {MOST_S} s"
            for pid in {*_left(runs), str(process.pid)}:
                with suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            process.wait()
    assert code == 0, f"{command}: exit status {code}\n{out.read_text(errors='replace')}"


MOST_S = 600
"""Seconds; Ray starts a dozen processes, and machines are busy."""

_QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "OTEL_ML_ALLOWED_LATENESS": "5000", "OMP_NUM_THREADS": "1"}


def _left(runs: Path) -> list[str]:
    """Return the processes that were started with this folder for their runs."""
    said = f"OTEL_ML_DIR={runs}".encode()
    return [path.parent.name for path in Path("/proc").glob("[0-9]*/environ") if said in _words(path)]


def _words(path: Path) -> list[bytes]:
    try:
        return path.read_bytes().split(b"\0")
    except OSError:  # it has ended, or is somebody else's
        return []


def _found(path: Path) -> Found:
    lines = [orjson.loads(line) for line in path.read_bytes().splitlines()]
    rows = [line for line in lines if {"tokens", "who"} & {*line.get("values", {})}]
    values: dict[int, dict[str, float]] = {}
    for row in rows:  # one that amends has what it changes
        values.setdefault(row["step"], {}).update(row["values"])
    return Found(
        statuses=tuple(line["status"] for line in lines if line.get("type") == "status"),
        attempts=frozenset(row["attempt"] for row in rows),
        sums={step: (found["tokens"], found["who"]) for step, found in values.items()},
    )


def environment() -> dict[str, str]:
    """Return this process' variables without those of launchers and of otel_ml."""
    return {name: value for name, value in os.environ.items() if not is_the_shells(name)}
