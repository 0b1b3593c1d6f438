"""The disturbed job: its processes, and what is between them and the backends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.backends import NAMES, TROUBLE, install
from tests.chaos.disk import SmallDisk
from tests.chaos.hops import Hops
from tests.chaos.layout import LAYOUTS, RANKS
from tests.chaos.steps import file_of, last_in, reached_in
from tests.e2e.jobs import environment, services_of, until
from tests.surroundings import SOURCES

PAUSE_S = 0.1
"""Between two steps: a service can still amend the last 1,024, so what is under way for a minute is not too late."""

LATENESS_MS = 2000
END_SILENCE_MS = 20_000

REDONE = 12
"""A trainer goes on from its last checkpoint, at most so many steps back."""

Span = tuple[float, float]
"""Monotonic seconds from, to."""


@dataclass
class Life:
    """One incarnation of a rank; times are monotonic."""

    role: str
    rank: int
    attempt: int
    process: subprocess.Popen[bytes]
    killed_at: float | None = None
    is_zombie: bool = False
    is_ended: bool = False
    gave_up_at: float | None = None
    stopped: list[Span] = field(default_factory=list)

    @property
    def gone_at(self) -> float | None:
        """When it was killed, or ended without what it had being taken from it."""
        return self.gave_up_at if self.killed_at is None else self.killed_at

    @property
    def lives(self) -> bool:
        return self.killed_at is None and not self.is_zombie and not self.is_ended


class Job:
    """Starts everything in `folder`, and keeps it alive as a launcher would.

    Args:
        mode: of `LAYOUTS`.
        has_disks: whether disks can be made that are small.
    """

    def __init__(self, folder: Path, mode: str, seed: int, *, has_disks: bool) -> None:
        self.folder = folder
        self.mode = mode
        self.layout = LAYOUTS[mode]
        self.disk = SmallDisk(folder / "disk", is_mounted=has_disks)
        self.spools = SmallDisk(folder / "spools", is_mounted=has_disks)
        self.runs = self.disk.folder / "runs"
        self.steps = folder / "steps"
        self.steps.mkdir()
        self.trouble = folder / "trouble"
        self.lives: list[Life] = []
        self.starts = [0]
        self.spools_full: list[Span] = []
        self.is_swallowed = False
        self.leaked = 0
        self.log = (folder / "log").open("ab")
        install(folder / "plug-in")
        self.hops = Hops(folder, self.layout, seed, self.runs, self.environment())
        self.beside: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        self.hops.start()
        self.beside.append(self._run("tests.chaos.control", self.steps, PAUSE_S, env=self.environment()))
        for cpu in os.sched_getaffinity(0):
            self.beside.append(self._run("tests.chaos.stolen", self.steps, cpu, env=self.environment()))
        for role, ranks in RANKS.items():
            for rank in range(ranks):
                self.launch(role, rank, "0")

    def environment(self) -> dict[str, str]:
        known = {
            "OTEL_ML_DIR": self.runs,
            "OTEL_ML_EXPORTERS": ",".join(NAMES),
            "OTEL_ML_ALLOWED_LATENESS": LATENESS_MS,
            "OTEL_ML_END_SILENCE": END_SILENCE_MS,
            "OTEL_ML_CONSOLE": "off",
            "XDG_RUNTIME_DIR": self.spools.folder,  # `recover` takes up everything it finds: nothing of other jobs
            "WANDB_MODE": "offline",
            "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
            TROUBLE: self.trouble,
        }
        if not self.layout.counted:
            # By a torchrun's run id the launcher's counter counts; by an id of ours the service finds restarts itself.
            known["OTEL_ML_EXPERIMENT_ID"] = f"chaos-{os.getpid()}-{self.folder.name}"
        path = os.pathsep.join([SOURCES, str(self.folder / "plug-in")])
        return {**environment(**known), "PYTHONPATH": path}

    def launch(self, role: str, rank: int, first: str) -> None:
        attempt = len(self.starts) - 1 if role == "trainer" else 0
        variables = {"OTEL_SERVICE_NAME": role, "RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": RANKS[role]}
        if self.layout.counted:
            variables |= {"TORCHELASTIC_RUN_ID": "chaos", "TORCHELASTIC_RESTART_COUNT": attempt}
        env = {**self.environment(), **self.hops.endpoint, **{name: str(value) for name, value in variables.items()}}
        process = self._run("tests.chaos.rank", self.steps, first, PAUSE_S, env=env)
        self.lives.append(Life(role, rank, attempt, process))

    def _run(self, *module: object, env: dict[str, str]) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", *map(str, module)]
        return subprocess.Popen(command, env=env, cwd=self.folder, stdout=self.log, stderr=self.log)

    def living(self, *roles: str) -> list[Life]:
        return [life for life in self.lives if life.lives and life.role in (roles or RANKS)]

    def descriptors(self) -> dict[int, int]:
        """Return how many files each rank that trains has open: sockets come and go with who it is connected to."""
        found = {}
        for life in (one for one in self.living() if self.last_of(one) >= 0):
            with suppress(OSError):
                opened = [one.readlink() for one in Path(f"/proc/{life.process.pid}/fd").iterdir()]
                found[life.process.pid] = sum(target.is_absolute() for target in opened)
        return found

    def kill(self, life: Life) -> None:
        life.killed_at = time.monotonic()
        life.process.kill()
        life.process.wait()

    def restart_trainers(self, back: int, ranks: Sequence[int]) -> None:
        """Start the next attempt from a checkpoint, `back` steps before the last that every rank had begun."""
        last = [life for life in self.lives if life.role == "trainer" and life.attempt == len(self.starts) - 1]
        # A rank that was killed before its first step is where its attempt began.
        reached = [max(self.last_of(life), self.starts[-1] - 1) for life in last]
        first = max(0, min(reached) + 1 - back)
        self.starts.append(first)
        for rank in ranks:
            self.launch("trainer", rank, str(first))

    def last_of(self, life: Life) -> int:
        """Return the last step that a process has begun, or -1."""
        return last_in(file_of(self.steps, life.role, life.rank, life.process.pid))

    def embedded_services(self) -> list[int]:
        return services_of(XDG_RUNTIME_DIR=str(self.spools.folder))

    def finish(self) -> None:
        """Let every process end by itself, deliver what is left, and end what is between."""
        goal = {role: reached_in(self.steps, role) + REDONE + 30 for role in RANKS}
        until(lambda: all(self.last_of(life) >= goal[life.role] for life in self.living()), seconds=120)
        (self.steps / "stop").touch()
        for life in self.living():
            assert life.process.wait(60) == 0, f"{life.role} {life.rank} failed; see {self.folder / 'log'}"
        if self.layout.served:
            self.hops.finish()
        else:
            until(lambda: not self.embedded_services(), seconds=180)
        recover = self._run("otel_ml_service", "recover", "--dir", self.runs, env=self.environment())
        assert recover.wait(300) == 0, f"otel-ml recover failed; see {self.folder / 'log'}"

    def close(self) -> None:
        """End whatever still runs."""
        for process in [*(life.process for life in self.lives), *self.beside]:
            process.kill()
            process.wait()
        self.hops.close()
        for pid in self.embedded_services():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.log.close()
