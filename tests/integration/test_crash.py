"""The service as a process: killed, stopped, and started by a job for itself."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from otel_ml.wire.rendezvous import Rendezvous
from tests.integration.conftest import Sender
from tests.otlp import FakeWriter, write_spool
from tests.waiting import eventually, whole_lines

SCRIPT = Path(__file__).with_name("file_service.py")


class Process:
    """Starts the service as often as a test wants."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.rendezvous = Rendezvous(folder / "rendezvous")
        self.process: subprocess.Popen[bytes] | None = None
        self.sender: Sender | None = None

    def start(self, *arguments: str) -> Sender:
        address = self.folder / "address"
        address.unlink(missing_ok=True)
        environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        with (self.folder / "log").open("ab") as log:
            command = [sys.executable, str(SCRIPT), str(self.folder), *arguments]
            self.process = subprocess.Popen(command, env=environ, stderr=log, start_new_session=True)
        eventually(lambda: address.exists() or self._has_died())
        endpoint, token = json.loads(address.read_text())
        self.close_sender()
        self.sender = Sender(int(endpoint.rpartition(":")[2]), token)
        return self.sender

    def _has_died(self) -> bool:
        assert self.process is not None
        if self.process.poll() is not None:
            raise AssertionError((self.folder / "log").read_text())
        return False

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def end(self, number: signal.Signals) -> int:
        assert self.process is not None
        self.signal(number)
        return self.process.wait(30)

    def close_sender(self) -> None:
        if self.sender is not None:
            self.sender.close()

    def lines(self) -> list[dict[str, object]]:
        path = self.folder / "runs" / "default" / "run-1" / "records.jsonl"
        return [json.loads(line) for line in whole_lines(path)] if path.exists() else []

    def ended(self) -> bool:
        return any(line["kind"] == "RunStatus" for line in self.lines())

    def close(self) -> None:
        self.close_sender()
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Process]:
    found = Process(tmp_path)
    yield found
    found.close()


def losses(process: Process) -> dict[object, object]:
    return {line["step"]: line["values"]["loss"] for line in process.lines() if "loss" in line["values"]}  # type: ignore[index, operator]


def test_killed_in_mid_run_and_restarted_every_record_is_there_once(process: Process) -> None:
    sender = process.start()
    writers = [FakeWriter(rank=rank, world_size=2) for rank in range(2)]

    for step in range(60):
        for writer in writers:
            message = writer.step(step, {"loss": float(step + writer.rank)})
            assert sender.send("metrics", message).status == 200
            if (step, writer.rank) in {(13, 0), (27, 1), (41, 0)}:  # acknowledged: must survive what follows
                process.end(signal.SIGKILL)
                sender = process.start()
    for writer in writers:
        sender.send("logs", writer.goodbye())
    eventually(process.ended)

    lines = process.lines()
    assert [line["seq"] for line in lines] == list(range(1, len(lines) + 1))
    assert losses(process) == {step: step + 0.5 for step in range(60)}


def test_sigterm_delivers_what_was_acknowledged_and_ends_cleanly(process: Process) -> None:
    sender = process.start()
    writer = FakeWriter()
    for step in range(50):
        sender.send("metrics", writer.step(step, {"loss": 1.0}))

    status = process.end(signal.SIGTERM)

    assert status == 0
    assert losses(process) == dict.fromkeys(range(50), 1.0)


def test_embedded_the_service_ignores_ctrl_c_ends_with_its_run_and_takes_its_address_away(process: Process) -> None:
    sender = process.start("--embedded")
    service = process.rendezvous.read_service()
    assert service is not None
    assert (service.pid, service.token) == (process.process.pid if process.process else 0, sender.token)
    assert process.rendezvous.service_file.stat().st_mode & 0o777 == 0o600
    process.signal(signal.SIGINT)
    writer = FakeWriter()

    for step in range(5):
        assert sender.send("metrics", writer.step(step, {"loss": 1.0})).status == 200
    sender.send("logs", writer.goodbye())

    assert process.process is not None
    assert process.process.wait(30) == 0
    assert losses(process) == dict.fromkeys(range(5), 1.0)
    assert Path(service.run_dir) == process.folder / "runs" / "default" / "run-1"
    assert process.rendezvous.read_service() is None
    assert not process.rendezvous.folder.exists()
    assert not (Path(service.run_dir) / "state" / "open").exists()


def test_embedded_spools_of_killed_workers_are_taken_in_and_those_of_live_ones_are_left(process: Process) -> None:
    process.rendezvous.create()
    dead, live = (process.rendezvous.spool / f"{name}-0.spool" for name in ("dead", "live"))
    writer = FakeWriter(rank=0, world_size=1)
    write_spool(dead, writer, range(5))
    write_spool(live, FakeWriter(rank=1), range(5))
    with live.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)

        sender = process.start("--embedded")
        eventually(lambda: not dead.exists())
        sender.send("logs", writer.goodbye())
        eventually(process.ended)

        assert losses(process) == dict.fromkeys(range(5), 0.25)
        assert live.exists()
        assert process.process is not None
        assert process.process.wait(30) == 0
        assert live.exists()
