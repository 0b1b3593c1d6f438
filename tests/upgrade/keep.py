"""Keep the state of a service that was killed in mid-run: `python -m tests.upgrade.keep NAME [--code CHECKOUT]`.

`tests/upgrade/kept/NAME.tar.xz` is what this code, or the one of another checkout, left behind. What is kept there was
written by the last code of each version; it is never made anew.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.upgrade import job
from tests.waiting import eventually, whole_lines

__all__ = ["KEPT", "half_done", "interrupted", "left_at", "lines", "post", "running", "unpacked"]

ROOT = Path(__file__).parents[2]
KEPT = Path(__file__).with_name("kept")


@contextmanager
def running(folder: Path, *arguments: str, code: Path = ROOT) -> Iterator[subprocess.Popen[bytes]]:
    """Run the service of `folder` as a process, with the code of a checkout; killed at the end of the block."""
    (folder / "address").unlink(missing_ok=True)
    path = os.pathsep.join(map(str, (code, code / "exporters", code / "service", ROOT)))
    environ = {**os.environ, "PYTHONPATH": path}
    with (folder / "log").open("ab") as log:
        command = [
            sys.executable,
            str(Path(__file__).with_name("service.py")),
            str(folder),
            str(left_at(folder)),
            *arguments,
        ]
        process = subprocess.Popen(command, env=environ, stderr=log, cwd=folder, start_new_session=True)
    try:
        eventually(lambda: (folder / "address").exists() or process.poll() is not None, timeout=60.0)
        yield process
    finally:
        process.kill()
        process.wait()


def left_at(folder: Path) -> float:
    """Return when a folder's service was killed, in seconds since the epoch; now, where there was none."""
    return float((folder / "now").read_text()) if (folder / "now").exists() else time.time()


def post(folder: Path, requests: Iterable[job.Request]) -> list[int]:
    """Send requests to the service of `folder`, in order, and return the answers' codes."""
    port = int((folder / "address").read_text().rpartition(":")[2])
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    codes = []
    for signal_name, body in requests:
        connection.request("POST", f"/v1/{signal_name}", body, {"content-type": "application/x-protobuf"})
        answer = connection.getresponse()
        answer.read()
        codes.append(answer.status)
    connection.close()
    return codes


def lines(folder: Path, exporter: str = "lines") -> list[dict[str, object]]:
    """Return what an exporter has written."""
    return [json.loads(line) for path in folder.glob(f"runs/*/*/{exporter}.jsonl") for line in whole_lines(path)]


def half_done(folder: Path) -> None:
    """Send the first part of the job to the service of `folder`."""
    assert set(post(folder, job.at_once())) == {200}
    closed = {"attempt": 1, "axis": "step", "step": job.CUT - 3}
    eventually(lambda: any(closed.items() <= line.items() for line in lines(folder)), timeout=60.0)
    assert set(post(folder, job.late())) == {200}
    eventually(lambda: any(line.get("text") for line in lines(folder)), timeout=60.0)


def interrupted(folder: Path, code: Path = ROOT) -> None:
    """Record the first part of the job below `folder`, and kill the service."""
    with running(folder, "--held", code=code) as process:
        half_done(folder)
        process.send_signal(signal.SIGKILL)


def unpacked(name: str, folder: Path) -> Path:
    """Unpack what is kept under `name` into `folder`, and return it; its services believe that it was left just now."""
    with tarfile.open(KEPT / f"{name}.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    (folder / "now").write_text(str(max(path.stat().st_mtime for path in folder.rglob("*"))))
    return folder


def _keep(name: str, code: Path) -> None:
    with tempfile.TemporaryDirectory() as folder, tarfile.open(KEPT / f"{name}.tar.xz", "w:xz") as archive:
        interrupted(Path(folder), code)
        archive.add(Path(folder, "runs"), "runs")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name")
    parser.add_argument("--code", type=Path, default=ROOT)
    arguments = parser.parse_args()
    _keep(arguments.name, arguments.code.resolve())
