"""What is between a rank and a backend, kept alive: service, Collector, MLflow server, and their networks."""

from __future__ import annotations

import json
import shutil
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.chaos.layout import Layout
from tests.chaos.proxy import Proxy
from tests.collector.pipeline import Collector, Program, empty_mlflow_store
from tests.ports import free_port

COLLECTOR_RETRY_S = 6.0
"""The Collector tries again after at most 5 s; when nothing has come for longer, it has nothing."""

DELIVERY_S = 150.0
"""Of a job that has ended: the longest pause of an exporter that has failed often is 60 s."""


class Hops:
    """The programs of a layout; in embedded mode there are none.

    Attributes:
        endpoint: variables by which a rank finds the first hop.
        programs: by target of a fault.
        networks: by target of a fault.
    """

    def __init__(self, folder: Path, layout: Layout, seed: int, runs: Path, env: Mapping[str, str]) -> None:
        self.endpoint: dict[str, str] = {}
        self.programs: dict[str, Program] = {}
        self.networks: dict[str, Proxy] = {}
        self._down: dict[str, float] = {}
        if not layout.served:
            return
        runs.mkdir(parents=True)
        env = dict(env)
        if layout.mlflow_server:
            self.programs["mlflow"] = mlflow_server(folder, runs, port := free_port(), env)
            self.networks["mlflow"] = Proxy(port, seed)
            env["MLFLOW_TRACKING_URI"] = f"http://127.0.0.1:{self.networks['mlflow'].port}"
        http, grpc = free_port(), free_port()
        self._http = http
        command = [sys.executable, "-m", "otel_ml_service", "serve"]
        command += ["--http", f"127.0.0.1:{http}", "--grpc", f"127.0.0.1:{grpc}"]
        self.programs["service"] = Program("service", command, env, folder, f"http://127.0.0.1:{http}/healthz")
        entry = grpc if layout.protocol == "grpc" else http
        if layout.through_collector:
            self.networks["hop"] = Proxy(grpc, seed + 1)
            collector = Collector(folder, "gateway", OTEL_ML_SERVICE=f"127.0.0.1:{self.networks['hop'].port}")
            self.programs["collector"] = collector
            entry = int(collector.http.rpartition(":")[2])
        self.networks["network"] = Proxy(entry, seed)
        self.endpoint = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{self.networks['network'].port}",
            "OTEL_EXPORTER_OTLP_PROTOCOL": layout.protocol,
        }

    def start(self) -> None:
        for program in self.programs.values():
            program.launch()

    def kill(self, name: str) -> None:
        """Kill -9, until `revive`."""
        self._down[name] = float("inf")
        self.programs[name].kill()

    def revive(self, name: str) -> None:
        self._down.pop(name, None)
        self.programs[name].launch()

    def look_after(self) -> list[str]:
        """Start what ended by itself again, a second later, as a supervisor does; return what that was."""
        ended = []
        for name, program in self.programs.items():
            assert program.process is not None
            if program.process.poll() is None:
                continue
            if name not in self._down:
                ended.append(name)
            if time.monotonic() >= self._down.setdefault(name, time.monotonic() + 1.0):
                self.revive(name)
        return ended

    def finish(self) -> None:
        """Wait until every value that was acknowledged is delivered, and end everything in order."""
        settled_s = COLLECTOR_RETRY_S if "collector" in self.programs else 0.0
        last_seq, since = 0, time.monotonic()
        run: dict[str, Any] = {}

        def is_over() -> bool:
            nonlocal last_seq, since, run
            self.look_after()
            [run] = self._ask("/otel_ml/runs") or [run]
            if run.get("last_seq") != last_seq:
                last_seq, since = run.get("last_seq", 0), time.monotonic()
            is_quiet = time.monotonic() - since >= settled_s
            return run.get("status", "running") != "running" and not run["pending"] and is_quiet

        deadline = time.monotonic() + DELIVERY_S
        while not is_over():
            assert time.monotonic() < deadline, f"not delivered after {DELIVERY_S:.0f} s: {run}"
            time.sleep(0.2)  # between two looks
        for name in ("collector", "service", "mlflow"):
            if name in self.programs:
                self.programs[name].stop()

    def _ask(self, path: str) -> Any:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._http}{path}", timeout=10) as answer:
                return json.load(answer)
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return None

    def close(self) -> None:
        for program in self.programs.values():
            program.kill()


def mlflow_server(folder: Path, runs: Path, port: int, env: Mapping[str, str]) -> Program:
    """Return a server on the database that the exporter would use without one.

    In one process: of `mlflow server` a `kill -9` ends the parent alone, and the child goes on to serve.
    """
    database = runs / "mlflow.db"
    from mlflow.server.constants import ARTIFACT_ROOT_ENV_VAR, BACKEND_STORE_URI_ENV_VAR  # seconds, where it is used

    shutil.copy(empty_mlflow_store(), database)
    store = {
        BACKEND_STORE_URI_ENV_VAR: f"sqlite:///{database}",
        ARTIFACT_ROOT_ENV_VAR: str(runs / "mlflow-artifacts"),
    }
    command = [sys.executable, "-m", "uvicorn", "--host", "127.0.0.1", "--port", port, "--log-level", "warning"]
    command += ["mlflow.server.fastapi_app:app"]
    return Program("mlflow", command, {**env, **store}, folder, f"http://127.0.0.1:{port}/health")
