"""The commands of docs/service.md: a service with a token, and a doctor that finds it from another shell."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from contextlib import closing
from pathlib import Path

from tests.docs.page import blocks_of
from tests.docs.test_blocks import with_commands
from tests.e2e.jobs import ROOT, until
from tests.ports import free_port


def test_the_doctor_finds_the_service_that_the_page_starts(tmp_path: Path) -> None:
    port = free_port()
    serve, export = (
        block.code.replace("4318", str(port))
        for block in blocks_of(ROOT / "docs" / "service.md")
        if block.marker == "run by"
    )
    env = {
        **with_commands(tmp_path),
        "OTEL_ML_LISTEN_HTTP": f"127.0.0.1:{port}",
        "OTEL_ML_LISTEN_GRPC": f"127.0.0.1:{free_port()}",
    }

    service = subprocess.Popen(["bash", "-c", serve], cwd=tmp_path, env=env, start_new_session=True)
    try:
        until(lambda: listens(port, service), seconds=30)
        doctor = subprocess.run(
            ["bash", "-euc", export], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
        )
    finally:
        os.killpg(service.pid, signal.SIGTERM)
        service.wait(timeout=20)

    assert doctor.returncode == 0, doctor.stdout + doctor.stderr


def listens(port: int, service: subprocess.Popen[bytes]) -> bool:
    assert service.poll() is None, "The service ended by itself."
    with closing(socket.socket()) as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
