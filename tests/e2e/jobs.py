"""Start jobs of real processes, wait for what they promise, read back what the backends stored."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import psutil

from tests.contract import reading
from tests.ports import free_port
from tests.surroundings import SOURCES
from tests.waiting import eventually

ROOT = Path(__file__).resolve().parents[2]
BACKENDS = ("jsonl", "tensorboard", "mlflow", "wandb")

T = TypeVar("T")


def environment(**variables: object) -> dict[str, str]:
    """Return the environment of a process that can import the project and these tests."""
    return {**os.environ, "PYTHONPATH": SOURCES, **{name: str(value) for name, value in variables.items()}}


def until(condition: Callable[[], T], *, seconds: float = 60) -> T:
    """Return the first true answer of `condition`; fail after `seconds`."""
    return eventually(condition, timeout=seconds)


def finished(command: Sequence[object], env: Mapping[str, str], cwd: Path, *, code: int = 0) -> str:
    """Run a command to its end, expect its exit status, and return stderr."""
    done = subprocess.run(
        [str(part) for part in command],
        env=dict(env),
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stderr


@contextmanager
def processes(
    commands: Sequence[tuple[Sequence[object], Mapping[str, str]]], cwd: Path
) -> Iterator[list[subprocess.Popen]]:
    """Start all commands at once; what still runs at the end of the block is killed."""
    started = [
        subprocess.Popen(
            [str(part) for part in command],
            env=dict(env),
            cwd=cwd,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for command, env in commands
    ]
    try:
        yield started
    finally:
        for process in started:
            process.kill()
            process.communicate()


def all_finished(started: Sequence[subprocess.Popen]) -> list[str]:
    """Wait for all processes, expect that none failed, and return what each said on stderr."""
    said = [process.communicate(timeout=280)[1] for process in started]
    assert [process.returncode for process in started] == [0] * len(started), "\n".join(said)
    return said


def torchrun(processes: int, *program: object) -> list[object]:
    """Return the command of `torchrun`, on a port of its own: its default port is one for the whole host."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", processes]
    return [*launcher, "--master-port", free_port(), *program]


def reach(training: subprocess.Popen[str], step: int) -> None:
    """Read what `tests.e2e.loop` prints until it has begun `step`."""
    lines = iter(training.stdout.readline, "") if training.stdout else ()
    assert f"step {step}\n" in lines, "The process ended early."


def runs_in(folder: Path) -> list[Path]:
    """Return the folders of all runs under an `OTEL_ML_DIR`, once everything is written and the services have ended."""
    until(lambda: not services_of(OTEL_ML_DIR=str(folder)), seconds=180)  # 30 s of silence are in it
    return sorted(path.parent for path in folder.glob("*/*/metrics.jsonl"))


def the_run_in(folder: Path) -> Path:
    """Return the folder of the only run under an `OTEL_ML_DIR`, once everything is written."""
    [run] = runs_in(folder)
    return run


def rows_in(file: Path) -> list[dict[str, Any]]:
    """Return the rows of a `metrics.jsonl` so far: none before it is there, and not the one that is being written."""
    lines = file.read_bytes().splitlines(keepends=True) if file.exists() else []
    return [json.loads(line) for line in lines if line.endswith(b"\n")]


Scalars = dict[str, dict[int, float]]


def scalars_in(backend: str, run: Path) -> Scalars:
    """Return published name → step → last stored value, as the backend's own library reads it in another process."""
    answer = answer_of(backend, run)
    written = answer.get("names", {})  # where a backend does not take a name, what it was
    shown: Scalars = {}
    for name, _, step, value, *_ in [*answer["scalars"], *answer.get("amendments", [])]:
        shown.setdefault(written.get(name, name), {})[step] = float(value)
    return shown


Histograms = dict[tuple[str, int], tuple[list[float], list[float]]]


def histograms_in(backend: str, run: Path) -> Histograms:
    """Return (published name, step) → edges and counts of the last stored histogram, read as `scalars_in` does."""
    return {(name, step): (edges, counts) for name, step, edges, counts in answer_of(backend, run)["histograms"]}


def answer_of(backend: str, run: Path) -> dict[str, Any]:
    """Return all that a backend's reader says of a run, see `tests.contract.readers`."""
    return reading.answer_of(backend, run, run.name, environment())


def services_of(**variables: str) -> list[int]:
    """Return the process ids of the embedded services that were started with these variables."""
    return [process.pid for process in psutil.process_iter() if serves(process, variables)]


def begun_services_of(**variables: str) -> list[int]:
    """Return those that serve, or are about to: what a job has started leads their session, and is about to leave."""
    with suppress(ProcessLookupError):
        return [pid for pid in services_of(**variables) if os.getsid(pid) != pid]
    return []


def serves(process: psutil.Process, variables: Mapping[str, str]) -> bool:
    try:
        return "--embedded" in process.cmdline() and variables.items() <= process.environ().items()
    except psutil.Error:  # it ended meanwhile, or is another user's
        return False
