"""A job at a terminal says where to look at it while it trains; one that nobody watches opens no port for that."""

from __future__ import annotations

import http.client
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from otel_ml.wire.rendezvous import Service
from tests.e2e.jobs import environment
from tests.waiting import eventually

JOB = """
import sys, otel_ml
with otel_ml.init("watched", exporters="jsonl"):
    for step in range(3):
        otel_ml.log({"loss": 1.0 / (step + 1)}, step=step)
    otel_ml.flush(60)
    print("trains", flush=True)
    sys.stdin.readline()
"""


@contextmanager
def training(folder: Path, stderr: int) -> Iterator[subprocess.Popen[str]]:
    """Run the job up to where it trains on; it ends afterwards."""
    command = [sys.executable, "-c", JOB]
    own = folder / "runtime"  # where the processes of the job find their service
    own.mkdir(mode=0o700)
    env = environment(OTEL_ML_DIR=folder / "runs", XDG_RUNTIME_DIR=own)
    with subprocess.Popen(
        command, env=env, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, text=True
    ) as job:
        assert job.stdin is not None
        assert job.stdout is not None
        try:
            assert job.stdout.readline() == "trains\n"
            yield job
        finally:
            job.stdin.write("\n")


def asked(address: str) -> tuple[int, str]:
    where = urlsplit(address)
    with closing(http.client.HTTPConnection(where.hostname or "", where.port, timeout=60)) as connection:
        connection.request("GET", where.path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


def announced(folder: Path) -> Service:
    [found] = folder.rglob("service.json")
    return Service.from_json(found.read_text())


def test_the_address_that_a_job_prints_at_a_terminal_is_its_page_while_it_trains(tmp_path: Path) -> None:
    terminal, stderr = pty.openpty()
    with training(tmp_path, stderr):
        os.close(stderr)
        said = ""
        while "look at it while it trains: " not in said or not said.endswith("\n"):
            said += os.read(terminal, 4096).decode()
        address = said.partition("look at it while it trains: ")[2].split()[0]
        closed, nothing = asked(f"{address.partition('/run/')[0][:-1]}x/")
        # A step is complete when a later one has begun.
        page = eventually(lambda: (found := asked(address)) and "</b> · step 1" in found[1] and found, timeout=60)

    assert page[0] == 200
    assert "data-live-run" in page[1]
    assert closed == 403, nothing
    assert address.startswith("http://127.0.0.1:")
    logs = [path.read_text() for path in tmp_path.rglob("service.log")]
    assert logs
    assert all(address.split("/")[3] not in log for log in logs), "the token is in no log"
    os.close(terminal)


@pytest.mark.feature(
    "M8", "better", "nothing to switch on: `otel-ml why` and the page may be asked at any time, and left again"
)
def test_a_job_that_nobody_has_prepared_is_asked_why_while_it_trains(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "otel_ml_service", "why", "latest"]
    with (tmp_path / "stderr").open("w") as file, training(tmp_path, file.fileno()):
        env = environment(OTEL_ML_DIR=tmp_path / "runs", COLUMNS=200)
        said = eventually(
            lambda: (
                "the run goes on" in (found := subprocess.run(command, env=env, capture_output=True, text=True)).stdout
                and found.stdout
            ),
            timeout=60,
        )

    assert "no rank was found slow" in said
    assert "this is as of step" in said


def test_a_job_that_nobody_watches_opens_no_port_for_a_page(tmp_path: Path) -> None:
    with (tmp_path / "stderr").open("w") as file, training(tmp_path, file.fileno()):
        service = announced(tmp_path)

    assert service.page == ""
    assert "look at it" not in (tmp_path / "stderr").read_text()
