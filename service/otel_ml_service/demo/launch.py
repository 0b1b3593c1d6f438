"""Starts the demo's five processes as torchrun would, kills the evaluator once, and follows what is recorded."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from otel_ml._internal.transport.python_command import python_command
from otel_ml.exceptions import OtelMLError
from otel_ml.quantities import seconds
from otel_ml.wire.rendezvous import rendezvous_of
from otel_ml_service.demo.digits import save_digits
from otel_ml_service.demo.disturbance import KILL_EVALUATOR_AT
from otel_ml_service.stored_runs.read_records import is_live
from otel_ml_service.stored_runs.run_folders import RunFolder

__all__ = ["RANKS", "DemoFailedError", "Launch", "launch", "wait_for_service"]

RANKS = 4
_POLL_S = 0.05
_END_TIMEOUT_S = 10.0
"""Longest wait for a process that was asked to end; it may be delivering (at most 5 s)."""
_SERVICE_TIMEOUT_S = 150.0
"""Longest wait for the service to finish writing; it gives up by itself after two minutes without progress."""


class DemoFailedError(OtelMLError):
    """A process of the demo failed; the message ends with what it said last."""

    slug = "demo-failed"


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch of the demo's job.

    Attributes:
        run: folder of the run that all processes belong to.
        on_progress: called many times a second with the number of the last checkpoint's step, for a progress bar.
        on_event: called with a sentence when something happens.
    """

    run: RunFolder
    exporters: Sequence[str]
    steps: int
    on_progress: Callable[[], None]
    on_event: Callable[[str], None]

    def environment(self, rank: int, world_size: int) -> Mapping[str, str]:
        """Return what torchrun would set, which run it is, and one thread a process: five share the machine."""
        # What the shell has of these is meant for other jobs, and may lead to another service.
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("OTEL_EXPORTER_", "OTEL_ML_"))
        }
        return {
            **kept,
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(world_size),
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "OTEL_ML_EXPERIMENT_ID": self.run.id,
            "OTEL_ML_MODE": "embedded",
            "OTEL_ML_DIR": str(self.run.path.parent.parent),
            "OTEL_ML_EXPORTERS": ",".join(self.exporters),
            "OTEL_ML_FLUSH_INTERVAL": "200",
            "WANDB_MODE": "offline",
            # The demo needs no network and no server: MLflow's own SQLite file under OTEL_ML_DIR.
            "MLFLOW_TRACKING_URI": "",
        }


def launch(job: Launch) -> None:
    """Run the job to its end, until everything recorded is in the backends.

    Raises:
        DemoFailedError: a process failed.
    """
    with tempfile.TemporaryDirectory(prefix="otel-ml-demo-") as name, _processes() as processes:
        folder = Path(name)
        save_digits(folder)
        for rank in range(RANKS):
            processes[f"trainer-{rank}"] = _start(job, folder, "trainer", rank, RANKS)
        processes["evaluator"] = _start(job, folder, "evaluator", 0, 1)
        # Steps count from 0: with the checkpoint of step 99, 100 steps are done.
        _until(job, folder, processes, lambda: _evaluated(folder) + 1 >= min(KILL_EVALUATOR_AT, job.steps))
        _kill(processes.pop("evaluator"))
        job.on_event("killed the evaluator (SIGKILL), and started it again")
        processes["evaluator"] = _start(job, folder, "evaluator", 0, 1)
        trainers = [process for name, process in processes.items() if name.startswith("trainer")]
        _until(job, folder, processes, lambda: all(process.poll() == 0 for process in trainers))
        # Only now no checkpoint can follow: the evaluator takes those that are left, and ends.
        (folder / "finished").touch()
        _until(job, folder, processes, lambda: all(process.poll() == 0 for process in processes.values()))
        for line in _own_lines(folder):
            job.on_event(line)
    wait_for_service(job)


def _start(job: Launch, folder: Path, program: str, rank: int, world_size: int) -> subprocess.Popen[bytes]:
    with (folder / f"{program}-{rank}.log").open("ab") as log:
        return subprocess.Popen(
            python_command(f"otel_ml_service.demo.{program}", str(folder), str(job.steps)),
            env=job.environment(rank, world_size),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )


def _evaluated(folder: Path) -> int:
    """Return the step of the newest checkpoint that was evaluated, -1 before the first."""
    return max((int(path.stem.removeprefix("step-")) for path in folder.glob("step-*.done")), default=-1)


def _kill(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait()


def _until(
    job: Launch, folder: Path, processes: Mapping[str, subprocess.Popen[bytes]], condition: Callable[[], bool]
) -> None:
    while not condition():
        for name, process in processes.items():
            if process.poll() not in {None, 0}:
                raise DemoFailedError(f"The demo's {name} failed (status {process.returncode}).\n{_said(folder, name)}")
        job.on_progress()
        time.sleep(_POLL_S)


def _said(folder: Path, name: str, most: int = 20) -> str:
    logs = sorted(folder.glob(f"{name}*.log"))
    return "\n".join(logs[0].read_text(errors="replace").splitlines()[-most:]) if logs else ""


def _own_lines(folder: Path) -> Iterator[str]:
    """Yield what otel_ml itself has printed on the processes' terminals, each sentence once."""
    seen = set()
    for log in sorted(folder.glob("*.log")):
        for line in log.read_text(errors="replace").splitlines():
            if line.startswith("otel_ml: ") and line not in seen:
                seen.add(line)
                yield line


def wait_for_service(job: Launch) -> None:
    """Wait until the run's own service has written everything and ended."""
    rendezvous = rendezvous_of(job.run.id)
    deadline = time.monotonic() + _SERVICE_TIMEOUT_S
    # It is found no more from the moment at which it begins to end, and has the run open until it has.
    while rendezvous.read_service() is not None or is_live(job.run):
        if time.monotonic() > deadline:
            raise DemoFailedError(
                f"The service of run {job.run.id} is still writing after {seconds(_SERVICE_TIMEOUT_S)}. "
                f"See service.log in the run's folder, then: otel-ml recover"
            )
        job.on_progress()
        time.sleep(_POLL_S)


@contextmanager
def _processes() -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """Yield a dictionary of processes; whatever still runs at the end is ended."""
    processes: dict[str, subprocess.Popen[bytes]] = {}
    try:
        yield processes
    finally:
        for process in processes.values():
            if process.poll() is None:
                process.terminate()
        # All were asked before any is waited for, so they end side by side.
        deadline = time.monotonic() + _END_TIMEOUT_S
        while any(process.poll() is None for process in processes.values()) and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        for process in processes.values():
            process.kill()
            process.wait()
