"""How many ranks can be connected: what a service says of it when it starts, and to those who find no room."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

from tests.e2e.jobs import environment
from tests.ports import free_port
from tests.waiting import eventually

FILES = 150


@contextmanager
def service(folder: Path, files: int) -> Iterator[tuple[int, Path]]:
    """Start `otel-ml serve`, which may open so many files; return its port and what it says."""
    port, said = free_port(), folder / "said"
    command = f"ulimit -n {files}; exec {sys.executable} -m otel_ml_service serve --to jsonl --http 127.0.0.1:{port}"
    settings = environment(OTEL_ML_DIR=folder, OTEL_ML_LISTEN_GRPC="127.0.0.1:0")
    with said.open("wb") as output, subprocess.Popen(["bash", "-c", command], env=settings, stderr=output) as process:
        try:
            eventually(lambda: "Ctrl-C delivers" in said.read_text(), timeout=60)
            yield port, said
        finally:
            process.terminate()


def test_it_says_when_it_starts_how_many_can_connect_and_what_to_do_for_more(tmp_path: Path) -> None:
    with service(tmp_path, FILES) as (_, said):
        line = next(line for line in said.read_text().splitlines() if "connections at once" in line)

    room = int(re.search(r"takes ([0-9]+) connections at once", line)[1])  # type: ignore[index]
    assert 0 < room < FILES
    assert "LimitNOFILE=65536" in line
    assert "ulimit -n 65536" in line


def test_who_finds_no_room_and_the_log_are_told_what_to_do(tmp_path: Path) -> None:
    with service(tmp_path, FILES) as (port, said), ExitStack() as held:
        answers = set()
        for _ in range(FILES):
            connection = held.enter_context(closing(socket.create_connection(("127.0.0.1", port), timeout=60)))
            connection.setblocking(False)
            with suppress(BlockingIOError, ConnectionError):
                answers.add(connection.recv(2**12))
        eventually(lambda: "Refused a sender" in said.read_text())
        lines = [line for line in said.read_text().splitlines() if "Refused a sender" in line]

    assert len(lines) == 1
    assert "ulimit -n 65536" in lines[0]
    assert "a Collector on each host" in lines[0]


def test_the_doctor_says_how_many_can_connect_to_a_service_started_here(tmp_path: Path) -> None:
    command = f"ulimit -n {FILES}; exec {sys.executable} -m otel_ml_service doctor"
    done = subprocess.run(
        ["bash", "-c", command], env=environment(OTEL_ML_DIR=tmp_path, COLUMNS="400"), capture_output=True, text=True
    )

    found, do = re.search(r"takes ([0-9]+) connections at once.*\n(.*)", done.stdout).groups()  # type: ignore[union-attr]
    assert 0 < int(found) < FILES
    assert "ulimit -n 65536" in do
    assert "a Collector on each host" in do
