"""Start the programs between a rank and a backend, as an operator does: the real Collector and the real service."""

from __future__ import annotations

import atexit
import functools
import json
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from tests.e2e.jobs import BACKENDS, ROOT, all_finished, environment, finished, processes, until
from tests.ports import free_port

OTELCOL = ROOT / ".cache" / "collector" / "otelcol"
CONFIG = ROOT / "collector-config"

EVERYWHERE = ",".join(BACKENDS)
"""For `Service(to=…)`: all backends; W&B offline, as `tests/conftest.py` has it."""

SESSION = uuid.uuid4().hex[:8]

P = TypeVar("P", bound="Program")


class Program:
    """A process that can be killed and started again with the same command; what it says goes to one file."""

    def __init__(self, name: str, command: Sequence[object], env: Mapping[str, str], folder: Path, health: str) -> None:
        self.name = name
        self.command = [str(part) for part in command]
        self.env = dict(env)
        self.health = health
        self.log = folder / f"{name}.log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self: P) -> P:
        """Start it, and wait until it is healthy."""
        self.launch()
        until(self.is_healthy, seconds=60)
        return self

    def launch(self) -> None:
        """Start it without waiting."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command, env=self.env, cwd=self.log.parent, stdout=log, stderr=subprocess.STDOUT
            )

    def is_running(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, f"{self.name} ended by itself:\n{self.said}"
        return True

    def is_healthy(self) -> bool:
        return self.is_running() and answers(self.health)

    def kill(self) -> None:
        """Kill -9."""
        self.end(signal.SIGKILL)

    def stop(self) -> None:
        """End it in order."""
        self.end(signal.SIGTERM)

    def end(self, how: signal.Signals) -> None:
        if self.process is not None:
            with suppress(ProcessLookupError):
                self.process.send_signal(how)
            self.process.wait(timeout=60)

    @property
    def said(self) -> str:
        """Everything it wrote."""
        return self.log.read_text(errors="replace")

    def __enter__(self: P) -> P:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.kill()
        if error is not None:
            print(f"--- {self.name}\n{self.said[-6000:]}")


class Collector(Program):
    """`collector-config/<name>.yaml` … with free ports.

    Args:
        folder: for its queue and its log.
        configs: names of files in `collector-config/`, merged from left to right.
        name: of its log and its queue.
        authority: who signed its certificate, where it speaks TLS.
        address: on which it listens.
        variables: `OTEL_ML_…` of the configuration.
    """

    def __init__(
        self,
        folder: Path,
        *configs: str,
        name: str = "collector",
        authority: Path | None = None,
        address: str = "127.0.0.1",
        **variables: object,
    ) -> None:
        self.is_secure = authority is not None
        self.grpc, self.http, health = (f"{address}:{free_port()}" for _ in range(3))
        agent = "AGENT" if configs[0] == "agent" else "GATEWAY"
        env = environment(
            **{
                f"OTEL_ML_{agent}_GRPC": self.grpc,
                f"OTEL_ML_{agent}_HTTP": self.http,
                f"OTEL_ML_{agent}_HEALTH": health,
                "OTEL_ML_QUEUE": folder / f"{name}-queue",
                **variables,
            }
        )
        super().__init__(name, collector_command(*configs), env, folder, f"http://{health}/")

    @property
    def endpoint(self) -> str:
        """Base URL of its OTLP/HTTP."""
        return f"{'https' if self.is_secure else 'http'}://{self.http}"


def collector_command(*configs: str) -> list[object]:
    """Return the command of a Collector with these configurations."""
    assert OTELCOL.exists(), "There is no Collector to test with. Run: make collector"
    return [OTELCOL, *(part for config in configs for part in ("--config", CONFIG / f"{config}.yaml"))]


class Service(Program):
    """`otel-ml serve` with free ports, for several runs.

    Args:
        folder: for its runs and its log.
        to: exporters.
        name: of its log and the folder of its runs.
        options: of the command line.
        authority: who signed its certificate, where it speaks TLS.
        address: on which it listens.
        env: its environment; with OTEL_ML_TOKEN it is also asked with that token.
    """

    def __init__(
        self,
        folder: Path,
        to: str = "jsonl",
        *,
        name: str = "service",
        options: Sequence[object] = (),
        authority: Path | None = None,
        address: str = "127.0.0.1",
        **env: object,
    ) -> None:
        self.authority = authority
        self.token = env.get("OTEL_ML_TOKEN", "")
        self.grpc, self.http = (f"{address}:{free_port()}" for _ in range(2))
        self.runs = folder / f"{name}-runs"
        if "mlflow" in to:
            self.runs.mkdir()
            shutil.copy(empty_mlflow_store(), self.runs / "mlflow.db")
        command = [sys.executable, "-m", "otel_ml_service", "serve", "--to", to, "--dir", self.runs]
        command += ["--http", self.http, "--grpc", self.grpc, *options]
        super().__init__(name, command, environment(**env), folder, f"{self.endpoint}/healthz")

    @property
    def endpoint(self) -> str:
        """Base URL of its OTLP/HTTP."""
        return f"{'https' if self.authority else 'http'}://{self.http}"

    def is_healthy(self) -> bool:
        return self.is_running() and self.ask("/healthz") is not None

    def ask(self, path: str) -> Any:
        """Return the JSON at `path`; None where there is none, or nobody answers."""
        request = urllib.request.Request(self.endpoint + path, headers={"authorization": f"Bearer {self.token}"})
        context = ssl.create_default_context(cafile=str(self.authority)) if self.authority else None
        try:
            with urllib.request.urlopen(request, timeout=5, context=context) as answer:
                return json.load(answer)
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return None

    def account(self, experiment: str) -> Mapping[str, Any]:
        """Return what the service says about a run; empty where it knows none."""
        return self.ask(f"/otel_ml/runs/{experiment}") or {}

    def wait_for_the_end_of(self, experiment: str, *, seconds: float = 300) -> Mapping[str, Any]:
        """Wait until the run has ended and every exporter has everything; return its account."""
        return until(lambda: self.ended(experiment), seconds=seconds)

    def ended(self, experiment: str) -> Mapping[str, Any]:
        account = self.account(experiment)
        over = account and account["status"] != "running" and not account["pending"]
        delivered = over and all(one["delivered_seq"] == account["last_seq"] for one in account["exporters"].values())
        return account if delivered else {}

    def run_of(self, experiment: str) -> Path:
        """Return the folder of a run."""
        [folder] = self.runs.glob(f"*/{experiment}")
        return folder


@functools.cache
def empty_mlflow_store() -> Path:
    """Return a store as MLflow makes it: fifty migrations, each on the disk, which every test would wait for."""
    file = Path(tempfile.mkdtemp(prefix="mlflow")) / "mlflow.db"
    make = "import sys; from mlflow import MlflowClient; MlflowClient(sys.argv[1]).search_experiments()"
    finished([sys.executable, "-c", make, f"sqlite:///{file}"], environment(), file.parent)
    atexit.register(shutil.rmtree, file.parent, ignore_errors=True)
    return file


def answers(url: str) -> bool:
    """Whether `GET url` succeeds."""
    try:
        with urllib.request.urlopen(url, timeout=2):
            return True
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False


def ranks(
    folder: Path, endpoint: str, *, seed: int, roles: Mapping[str, int], steps: int, pause: float, **env: object
) -> list[tuple[list[object], dict[str, str]]]:
    """Return the commands of a job whose ranks record random values, and write down what they recorded."""
    written, host = folder / "written", folder / "host"
    written.mkdir(exist_ok=True)
    host.mkdir(mode=0o700, exist_ok=True)
    command: list[object] = [sys.executable, "-m", "tests.e2e.rank", seed, written, steps, pause]
    shared = {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "XDG_RUNTIME_DIR": host, **env}
    return [
        (command, environment(OTEL_SERVICE_NAME=role, RANK=rank, LOCAL_RANK=rank, WORLD_SIZE=size, **shared))
        for role, size in roles.items()
        for rank in range(size)
    ]


@contextmanager
def training(
    commands: Sequence[tuple[Sequence[object], Mapping[str, str]]], folder: Path
) -> Iterator[subprocess.Popen[str]]:
    """Run a job, and yield its first process; after the block wait for all.

    A rank waits seconds for a Collector that is away, not longer. What it then leaves on its host is sent as people do.
    """
    with processes(commands, folder) as started:
        yield started[0]
        all_finished(started)
    recover(commands[0][1], folder)


def recover(env: Mapping[str, str], folder: Path, on: Sequence[object] = ()) -> None:
    """Send what ranks left on their host, once their endpoint is there."""
    finished([*on, sys.executable, "-m", "otel_ml_service", "recover", "--timeout", 120], env, folder)


def experiment_of(folder: Path) -> str:
    """Return an id that no other test, and no run of this test before, has: what they left is not ours."""
    return f"{folder.name}-{SESSION}"
