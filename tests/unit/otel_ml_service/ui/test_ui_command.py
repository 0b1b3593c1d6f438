"""`otel-ml ui` as a process of its own."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from tests.recorded_run import write_run
from tests.unit.otel_ml_service.cli.program import PROGRAM, environment
from tests.unit.otel_ml_service.report.runs import records_of_everything
from tests.unit.otel_ml_service.ui.client import Client


@pytest.mark.parametrize("options", [[], ["--json"]], ids=["for people", "for programs"])
def test_the_command_says_the_address_first_answers_there_and_ends_with_ctrl_c(
    tmp_path: Path, options: list[str]
) -> None:
    write_run(tmp_path, "run-1", records_of_everything())
    command = [*PROGRAM, "ui", "--no-browser", *options]
    with subprocess.Popen(
        command, env=environment(tmp_path), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        first = process.stdout.readline().strip()
        address = json.loads(first)["url"] if options else first
        _, _, rest = address.partition("://")
        place, token, _ = rest.split("/")
        found = Client(int(place.partition(":")[2])).get("runs.json", token=token)
        process.send_signal(signal.SIGINT)
        said = process.stderr.read()

    assert place.startswith("127.0.0.1:")
    assert len(token) >= 40
    assert [row["run"] for row in found.json["runs"]] == ["run-1"]
    assert token not in said
    assert process.returncode == 130


def test_a_port_that_is_taken_is_said(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        command = [*PROGRAM, "ui", "--no-browser", "--port", str(port)]
        done = subprocess.run(command, env=environment(tmp_path), capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert f"Port {port}" in done.stderr
    assert "--port" in done.stderr
