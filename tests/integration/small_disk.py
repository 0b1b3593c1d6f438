"""A program: a service whose files, or some of them, lie on a small disk that fills up and is emptied again.

`unshare --user --map-root-user --mount python -m tests.integration.small_disk KIND WHERE EXPORTER FOLDER OUTPUT`

KIND is `full` or `read-only`, WHERE the folder below `OTEL_ML_DIR` that lies on the disk. OUTPUT gets what
happened as JSON.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from otel_ml_service.config import ServiceConfig
from otel_ml_service.delivery.retries import RetryPolicy
from otel_ml_service.service import Service
from otel_ml_service.storage.database import StorageError
from tests.e2e.jobs import scalars_in
from tests.integration.conftest import Sender
from tests.otlp import FakeWriter
from tests.waiting import eventually

SIZE = "24m"
BEFORE, UNTIL = 5, 40
WIDE = {f"layer/{number}/norm": float(number) for number in range(200)}


def mounted(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "none", folder], check=True)


@contextmanager
def full(folder: Path) -> Iterator[None]:
    """Take every byte that is left, again and again: files that shrink must find no room either."""
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as file:
        for size in (2**20, 4096, 1):
            with suppress(OSError):  # it is full
                while file.write(b"x" * size) == size:
                    pass
    yield
    ballast.unlink()


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """Take the right to write away; possible as long as no file on the disk is open for writing."""
    subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
    yield
    subprocess.run(["mount", "-o", "remount,rw", folder], check=True)


class Job:
    """Sends one step after the other, each until it is acknowledged."""

    def __init__(self, service: Service) -> None:
        self.sender = Sender(int(service.endpoint.rpartition(":")[2]))
        self.writer = FakeWriter()
        self.refused: set[str] = set()
        self.waits: set[str | None] = set()
        self.held: bytes | None = None
        self.done = 0

    def send(self, until: int, timeout_s: float) -> None:
        """Send up to step `until`, at most for so long; what is not acknowledged is sent again by the next call."""
        deadline = time.monotonic() + timeout_s
        while self.done < until and time.monotonic() < deadline:
            if self.held is None:
                values = {"loss": float(self.done), **WIDE}
                self.held = self.writer.step(self.done, values).SerializeToString()
            answer = self.sender.send("metrics", self.held)
            if answer.status == 200:
                self.held, self.done = None, self.done + 1
            else:
                said = answer.body[answer.body.find(b"Not stored") :].decode(errors="replace")
                self.refused.add(f"{answer.status} {said}")
                self.waits.add(answer.headers.get("retry-after"))
                time.sleep(0.05)  # refused: it is sent again, not at once

    def done_or_refused(self, until: int) -> bool:
        """Send as much as two seconds allow, and tell whether that was all, or something was refused."""
        self.send(until, 2)
        return self.done == until or bool(self.refused)


def states(account: dict[str, Any]) -> set[str]:
    return {found["state"] for found in account.get("exporters", {}).values()}


def has_noticed(service: Service, account: dict[str, Any] | None) -> bool:
    """Tell whether what was acknowledged has met the disk: the run cannot begin, go on, or be exported."""
    if account is None:
        return bool(service._loop._waiting.text)
    return account["problem"] is not None or not states(account) <= {"starting", "running"}


def records_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def options(exporter: str, folder: Path) -> dict[str, Any]:
    return {"tracking_uri": f"sqlite:///{folder / 'mlflow' / 'mlflow.db'}"} if exporter == "mlflow" else {}


def main() -> None:
    kind, where, exporter, folder = sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4])
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    disk = folder / where
    mounted(disk)
    config = ServiceConfig(
        dir=folder,
        http=("127.0.0.1", 0),
        exporters={"jsonl": {}, exporter: options(exporter, folder)},
        end_silence_s=600,
    )
    if where == ".service" and kind == "read-only":
        with read_only(disk), pytest.raises(StorageError) as refused:
            Service(config)
        Path(sys.argv[5]).write_text(json.dumps({"said": str(refused.value)}))
        return
    skipped_s = [0.0]
    service = Service(config, retry=RetryPolicy(0.05, 0.5), clock=lambda: time.time() + skipped_s[0])
    service.start()
    job = Job(service)
    if where != "default":  # there the run begins on the disk that takes nothing
        job.send(BEFORE, 30)
        eventually(lambda: states(job.sender.run()) == {"running"}, timeout=60)
    with full(disk) if kind == "full" else read_only(disk):
        eventually(lambda: job.done_or_refused(UNTIL), timeout=60)
        if exporter == "tensorboard":  # clients of other backends write when they like
            eventually(lambda: job.refused or has_noticed(service, job.sender.run()), timeout=60)
        if job.refused:  # for longer than a run may be silent
            for _ in range(4):
                skipped_s[0] += config.end_silence_s / 3
                skipped_at = time.monotonic()
                job.refused.clear()
                eventually(lambda: job.done_or_refused(UNTIL), timeout=60)
                eventually(lambda at=skipped_at: service._loop._committed_at > at, timeout=60)
        account = job.sender.run() or {}
        during = {"problem": account.get("problem"), "states": sorted(states(account)), "acknowledged": job.done}
    job.send(UNTIL, 60)
    assert job.done == UNTIL
    assert job.sender.send("logs", job.writer.goodbye()).status == 200
    eventually(lambda: (run := job.sender.run()) and run["status"] == "finished" and run["pending"] == 0, timeout=60)
    account = job.sender.run()
    service.stop()
    os.environ["MLFLOW_TRACKING_URI"] = options("mlflow", folder)["tracking_uri"]
    shown = scalars_in(exporter, folder / "default" / "run-1")
    expected = {"loss": {step: float(step) for step in range(UNTIL)}}
    expected |= {name: dict.fromkeys(range(UNTIL), value) for name, value in WIDE.items()}
    wrong = [name for name, values in expected.items() if shown.get(name) != values]
    Path(sys.argv[5]).write_text(json.dumps({
        "wrong": wrong, "during": during, "refused": sorted(job.refused), "waits": sorted(map(str, job.waits)),
        "lost": account["lost"], "notices": account["notices"],
        "statuses": [row["status"] for row in records_of(folder / "default" / "run-1") if row.get("type") == "status"],
    }))  # fmt: skip


if __name__ == "__main__":
    main()
