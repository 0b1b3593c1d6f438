"""The disturbed job: its processes, its service, and what can be done to them."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tests.chaos.proxy import MODES, Proxy
from tests.chaos.steps import file_of, last_in, reached_in
from tests.e2e.jobs import BACKENDS, environment, free_port, services_of, until

Mode = Literal["embedded", "serve"]

RANKS = {"trainer": 3, "generator": 2}
PAUSE_S = 0.03
LATENESS_MS = 2000
REDONE = 12
"""A trainer goes on from its last checkpoint, at most so many steps back."""


@dataclass
class Life:
    """One incarnation of a rank; times are monotonic."""

    role: str
    rank: int
    attempt: int
    process: subprocess.Popen[bytes]
    killed_at: float | None = None

    def __post_init__(self) -> None:
        self.stopped: list[tuple[float, float]] = []


class Job:
    """Starts everything in `folder`, and keeps it alive as a launcher would."""

    def __init__(self, folder: Path, mode: Mode, seed: int, *, counted: bool) -> None:
        self.folder = folder
        self.mode = mode
        self.random = random.Random(seed)
        self.counted = counted
        self.experiment = f"chaos-{os.getpid()}-{seed}"
        self.runs = folder / "runs"
        self.steps = folder / "steps"
        self.steps.mkdir(parents=True)
        self.runtime = folder / "runtime"  # `recover` takes up everything it finds: nothing of other jobs
        self.runtime.mkdir(mode=0o700)
        self.lives: list[Life] = []
        self.starts = [0]
        self.injected: Counter[str] = Counter()
        self.log = (folder / "log").open("ab")
        self.served: subprocess.Popen[bytes] | None = None
        self.port = free_port()
        self.proxy = Proxy(self.port, seed) if mode == "serve" else None

    def start(self) -> None:
        if self.mode == "serve":
            self.serve()
        for role, ranks in RANKS.items():
            for rank in range(ranks):
                self.launch(role, rank, "0")

    def environment(self, **more: object) -> dict[str, str]:
        known = {
            "OTEL_ML_EXPERIMENT_ID": self.experiment,
            "OTEL_ML_DIR": self.runs,
            "OTEL_ML_EXPORTERS": ",".join(BACKENDS),
            "OTEL_ML_ALLOWED_LATENESS": LATENESS_MS,
            "OTEL_ML_CONSOLE": "off",
            "XDG_RUNTIME_DIR": self.runtime,
            "WANDB_MODE": "offline",
        }
        if self.proxy is not None:
            known["OTEL_EXPORTER_OTLP_ENDPOINT"] = f"http://127.0.0.1:{self.proxy.port}"
        return environment(**{**known, **more})

    def serve(self) -> None:
        addresses = ["--http", f"127.0.0.1:{self.port}", "--grpc", "127.0.0.1:0"]
        self.served = self._run(["otel_ml_exporters", "serve", *addresses], self.environment())

    def launch(self, role: str, rank: int, first: str) -> None:
        attempt = len(self.starts) - 1 if role == "trainer" else 0
        variables = {"OTEL_SERVICE_NAME": role, "RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": RANKS[role]}
        if self.counted and role == "trainer":
            variables |= {"TORCHELASTIC_RESTART_COUNT": attempt, "TORCHELASTIC_RUN_ID": "none"}
        process = self._run(["tests.chaos.rank", self.steps, first, PAUSE_S], self.environment(**variables))
        self.lives.append(Life(role, rank, attempt, process))

    def _run(self, module: list[object], env: dict[str, str]) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", *map(str, module)]
        return subprocess.Popen(command, env=env, cwd=self.folder, stdout=self.log, stderr=self.log)

    def living(self, role: str | None = None) -> list[Life]:
        return [life for life in self.lives if life.killed_at is None and role in (None, life.role)]

    # Faults

    def faults(self) -> dict[str, Callable[[], None]]:
        """Return what can be done, by name."""
        found: dict[str, Callable[[], None]] = {
            "kill -9 of a trainer, restart": self.restart_trainers,
            "kill -9 of a generator": self.replace_generator,
            "kill -9 of the service": self.kill_service,
            "SIGSTOP of the service": self.stop_service,
            "SIGSTOP of a worker": self.stop_worker,
            "clock of a worker ± 1 h": self.jump,
        }
        if self.proxy is not None:
            found |= {f"network: {mode}": self.network(mode) for mode in MODES}
        return found

    def kill(self, life: Life) -> None:
        life.killed_at = time.monotonic()
        life.process.kill()
        life.process.wait()

    def restart_trainers(self) -> None:
        """Kill one rank; its launcher kills the others, and starts all of them from the last checkpoint."""
        victims = self.living("trainer")
        self.random.shuffle(victims)
        for life in victims:
            self.kill(life)
            time.sleep(self.random.choice([0.0, 0.0, 0.3]))
        # A rank that was killed before its first step is where its attempt began.
        reached = [max(last_of(self.steps, life), self.starts[-1] - 1) for life in victims]
        first = max(0, min(reached) + 1 - self.random.randint(0, REDONE))
        self.starts.append(first)
        for rank in range(RANKS["trainer"]):
            self.launch("trainer", rank, str(first))

    def replace_generator(self) -> None:
        life = self.random.choice(self.living("generator"))
        self.kill(life)
        time.sleep(self.random.uniform(0.0, 1.0))
        self.launch("generator", life.rank, "join")

    def service(self) -> int:
        if self.served is not None:
            return self.served.pid
        return until(lambda: services_of(OTEL_ML_EXPERIMENT_ID=self.experiment))[0]

    def kill_service(self) -> None:
        os.kill(self.service(), signal.SIGKILL)
        if self.served is not None:
            self.served.wait()
            time.sleep(self.random.uniform(0.0, 2.0))
            self.serve()

    def stop_service(self) -> None:
        self._pause(self.service(), self.random.choice([0.5, 2.0, 5.0]))

    def stop_worker(self) -> None:
        life = self.random.choice(self.living())
        began = time.monotonic()
        self._pause(life.process.pid, self.random.choice([0.3, 1.0, 4.0]))
        life.stopped.append((began, time.monotonic()))

    def _pause(self, pid: int, seconds: float) -> None:
        os.kill(pid, signal.SIGSTOP)
        time.sleep(seconds)
        os.kill(pid, signal.SIGCONT)

    def jump(self) -> None:
        life = self.random.choice(self.living())
        if last_of(self.steps, life) >= 0:  # the handler is installed by then
            life.process.send_signal(signal.SIGUSR1)

    def network(self, mode: str) -> Callable[[], None]:
        def disturb() -> None:
            assert self.proxy is not None
            self.proxy.mode = mode  # type: ignore[assignment]
            time.sleep(self.random.uniform(0.5, 3.0))
            self.proxy.mode = "pass"

        return disturb

    def disturb(self, faults: int, seconds: float) -> None:
        """Inject `faults` faults, spread over about `seconds`."""
        kinds = self.faults()
        began = time.monotonic()
        for number in range(faults):
            moment = began + seconds * number / faults + self.random.uniform(0.0, seconds / faults)
            time.sleep(max(0.5, moment - time.monotonic()))  # a worker that was stopped has run again before it dies
            kind = self.random.choice(sorted(kinds))
            kinds[kind]()
            self.injected[kind] += 1

    # End

    def finish(self) -> None:
        """Let every process end by itself, deliver what is left, and end the service."""
        goal = {role: reached_in(self.steps, role) + REDONE + 30 for role in RANKS}
        until(lambda: all(last_of(self.steps, life) >= goal[life.role] for life in self.living()), seconds=120)
        (self.steps / "stop").touch()
        for life in self.living():
            assert life.process.wait(60) == 0, f"{life.role} {life.rank} failed; see {self.folder / 'log'}"
        if self.served is not None:
            self._recover_to_service()
            self.served.terminate()
            assert self.served.wait(60) == 0
        else:
            until(lambda: not services_of(OTEL_ML_EXPERIMENT_ID=self.experiment), seconds=180)
        self._run(["otel_ml_exporters", "recover", "--dir", self.runs], self.environment()).wait(300)

    def _recover_to_service(self) -> None:
        """A last process of the job on this host sends what dead ones left; then the service has everything."""
        import json
        import urllib.request

        def is_over() -> bool:
            url = f"http://127.0.0.1:{self.port}/otel_ml/runs/{self.experiment}"
            with urllib.request.urlopen(url, timeout=10) as answer:
                run = json.loads(answer.read())
            return run["status"] != "running" and run["pending"] == 0

        until(is_over, seconds=120)

    def close(self) -> None:
        for life in self.lives:
            life.process.kill()
            life.process.wait()
        if self.served is not None:
            self.served.kill()
            self.served.wait()
        for pid in services_of(OTEL_ML_EXPERIMENT_ID=self.experiment):
            os.kill(pid, signal.SIGKILL)
        self.log.close()


def last_of(folder: Path, life: Life) -> int:
    """Return the last step that a process has begun, or -1."""
    return last_in(file_of(folder, life.role, life.rank, life.process.pid))
