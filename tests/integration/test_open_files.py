"""A service that may open few files: it says so, goes on with what it has, and is itself again when there is room."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

import pytest

from tests.e2e.jobs import environment
from tests.integration.conftest import Sender
from tests.otlp import FakeWriter
from tests.ports import free_port
from tests.waiting import eventually

FILES = 200
RUNS = 60


@contextmanager
def service(folder: Path, files: int) -> Iterator[tuple[int, int]]:
    """Start `otel-ml serve`, which may open so many files; return its ports for HTTP and gRPC."""
    port, grpc_port = free_port(), free_port()
    command = f"ulimit -n {files}; exec {sys.executable} -m otel_ml_service serve --to jsonl --http 127.0.0.1:{port}"
    settings = environment(OTEL_ML_DIR=folder, OTEL_ML_END_SILENCE="3000", OTEL_ML_LISTEN_GRPC=f"127.0.0.1:{grpc_port}")
    with subprocess.Popen(["bash", "-c", command], env=settings, stderr=subprocess.DEVNULL) as process:
        try:
            eventually(lambda: status(port) == 200, timeout=60)
            yield port, grpc_port
        finally:
            process.terminate()


def status(port: int) -> int:
    with suppress(OSError, http.client.HTTPException), closing(http.client.HTTPConnection("127.0.0.1", port)) as asked:
        asked.request("GET", "/healthz")
        return asked.getresponse().status
    return 0


def rank(name: str) -> FakeWriter:
    return FakeWriter(experiment=name, instance=name)


def losses(folder: Path, name: str) -> list[float]:
    found = folder / "default" / name / "metrics.jsonl"
    lines = map(json.loads, found.read_text().splitlines()) if found.exists() else []
    return [line["values"]["loss"] for line in lines if "loss" in line.get("values", {})]


def test_a_service_short_of_files_refuses_new_runs_goes_on_with_the_others_and_takes_new_ones_again(
    tmp_path: Path,
) -> None:
    with service(tmp_path, FILES) as (port, _), closing(Sender(port)) as sender:
        names = [f"run-{number}" for number in range(RUNS)]
        ranks = {name: rank(name) for name in names}
        first = {name: ranks[name].step(0, {"loss": 0.0}) for name in names}
        answers = {name: sender.send("metrics", first[name]) for name in names}
        taken = [name for name in names if answers[name].status == 200]
        refused = [name for name in names if answers[name].status == 503]
        assert len(taken) + len(refused) == RUNS
        assert min(len(taken), len(refused)) > 5
        assert answers[refused[0]].headers["retry-after"] == "1"

        assert sender.send("metrics", ranks[taken[0]].step(1, {"loss": 1.0})).status == 200
        for name in refused:  # the others end, and leave their place
            eventually(lambda name=name: sender.send("metrics", first[name]).status == 200, timeout=60)
        eventually(lambda: all(losses(tmp_path, name) for name in names), timeout=60)

    assert {name: losses(tmp_path, name) for name in names} == {
        name: [0.0, 1.0] if name == taken[0] else [0.0] for name in names
    }


@pytest.mark.timeout(200)
@pytest.mark.parametrize("transport", ["http", "grpc"])
def test_connections_that_take_all_files_stop_nothing_for_good(tmp_path: Path, transport: str) -> None:
    with service(tmp_path, FILES) as (port, grpc_port), closing(Sender(port)) as sender:
        known = rank("known")
        assert sender.send("metrics", known.step(0, {"loss": 0.0})).status == 200
        eventually(lambda: losses(tmp_path, "known") == [0.0])
        with ExitStack() as held:
            for _ in range(2 * FILES):
                with suppress(OSError):
                    address = "127.0.0.1", port if transport == "http" else grpc_port
                    held.enter_context(socket.create_connection(address, timeout=1))
            assert sender.send("metrics", known.step(1, {"loss": 1.0})).status == 200
            if transport == "http":  # of gRPC's connections nobody is asked
                eventually(lambda: losses(tmp_path, "known") == [0.0, 1.0])
        eventually(lambda: status(port) == 200)
        eventually(lambda: sender.send("metrics", rank("new").step(0, {"loss": 0.0})).status == 200)
        # An exporter that failed meanwhile waits up to a minute before its next try (`RetryPolicy.maximum_s`).
        eventually(lambda: (losses(tmp_path, "known"), losses(tmp_path, "new")) == ([0.0, 1.0], [0.0]), timeout=90)
