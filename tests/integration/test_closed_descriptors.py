"""A program that closes whatever is open, as daemons do: it loses nothing, and what it opens itself is its own."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.certificates import certificates
from tests.integration.worker_process import environment, run, variables
from tests.otlp_server import OtlpServer, otlp_server

CLOSES_EVERYTHING = """
    import os
    import socket
    import otel_ml

    otel_ml.init("closes")
    for step in range(30):
        otel_ml.log({"loss": float(step)}, step=step)
        if step == 10:
            otel_ml.flush(10)
            os.closerange(3, 256)
            mine = [OPEN for number in range(12)]
    otel_ml.shutdown(10)
    FINISH
"""

MY_FILES = """
    for number, file in enumerate(mine):
        assert os.get_blocking(file.fileno())
        file.write(b"%d" % number)
        file.close()
        assert open(file.name, "rb").read() == b"%d" % number
"""

MY_SOCKETS = """
    for number, (here, there) in enumerate(mine):
        assert os.get_blocking(here.fileno()) and os.get_blocking(there.fileno())
        here.send(b"%d" % number)
        here.close()
        assert there.recv(65536) == b"%d" % number
        assert there.recv(65536) == b""
"""

MY_PIPES = """
    for number, (there, here) in enumerate(mine):
        os.write(here, b"%d" % number)
        os.close(here)
        assert os.read(there, 65536) == b"%d" % number
        assert os.read(there, 65536) == b""
"""

OPENED = {
    "files": ('open(f"mine-{number}", "w+b")', MY_FILES),
    "sockets": ("socket.socketpair()", MY_SOCKETS),
    "pipes": ("os.pipe()", MY_PIPES),
}


def closes_everything(opened: str) -> str:
    opens, finish = OPENED[opened]
    return CLOSES_EVERYTHING.replace("OPEN", opens).replace("    FINISH\n", finish)


@contextmanager
def plain(_folder: Path) -> Iterator[tuple[OtlpServer, Mapping[str, str]]]:
    with otlp_server() as server:
        yield server, variables(server)


@contextmanager
def encrypted(folder: Path) -> Iterator[tuple[OtlpServer, Mapping[str, str]]]:
    files = certificates(folder)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.server, files.server_key)
    with otlp_server(tls=context) as server:
        yield server, variables(server, OTEL_EXPORTER_OTLP_CERTIFICATE=str(files.authority))


RECEIVERS = {"plain": plain, "encrypted": encrypted}


@pytest.mark.parametrize("opened", OPENED)
@pytest.mark.parametrize("receiver", RECEIVERS)
def test_a_program_that_closes_whatever_is_open_loses_nothing_and_finds_what_it_opens_as_it_left_it(
    receiver: str, opened: str, tmp_path: Path
) -> None:
    with RECEIVERS[receiver](tmp_path) as (server, given):
        _, errors = run(closes_everything(opened), environment(tmp_path, given), tmp_path)

        assert {point.step for point in server.points("loss")} == set(range(30))
        assert [event.attributes["ml.status"] for event in server.events("ml.writer.end")] == ["finished"]
    assert "internal-error" not in errors


def test_so_does_one_that_has_started_the_service_of_its_job(tmp_path: Path) -> None:
    _, errors = run(closes_everything("sockets"), environment(tmp_path), tmp_path)

    [rows] = tmp_path.glob("runs/*/*/metrics.jsonl")
    assert [json.loads(line)["values"]["loss"] for line in rows.read_text().splitlines() if "loss" in line] == [
        *range(30)
    ]
    assert "30 delivered, 0 lost" in errors
