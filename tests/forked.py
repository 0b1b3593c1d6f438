"""Processes of Python that begin with their slow imports done: each is forked from one that does nothing else.

It is what `python -m` would be after seconds of imports: with streams, an environment and a folder of its own, with
nothing of another test in its memory, and ended by SIGKILL like any other.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from tests.surroundings import SOURCES

__all__ = ["Forked"]

ROOT = Path(__file__).resolve().parents[1]

_IMPORTS = {
    "mlflow": ["mlflow.store.tracking.sqlalchemy_store", "tests.contract.readers.mlflow"],
    "wandb": ["tests.contract.readers.wandb"],
    "tensorboard": ["tests.contract.readers.tensorboard"],
}
"""What is slow to import, for what uses a library; the life of an exporter is imported for all."""


class Forked:
    """`python -m module arguments…`, shown as `subprocess.Popen` does: stdin and stdout are pipes, stderr is ours.

    Args:
        library: the one it uses.
    """

    def __init__(
        self, library: str, module: str, arguments: Sequence[str], *, env: Mapping[str, str], cwd: Path
    ) -> None:
        self._command = [module, *arguments]
        self.returncode: int | None = None
        its_stdin, stdin = os.pipe()
        stdout, its_stdout = os.pipe()
        self.stdin, self.stdout = os.fdopen(stdin, "w"), os.fdopen(stdout)
        self._control, its_control = socket.socketpair()
        self._answers = self._control.makefile()
        with its_control, os.fdopen(its_stdin), os.fdopen(its_stdout, "w"):
            _resident(library).fork([its_stdin, its_stdout, 2, its_control.fileno()])
        life = {"module": module, "arguments": [*arguments], "env": dict(env), "cwd": str(cwd.resolve())}
        self._control.sendall(json.dumps(life).encode() + b"\n")
        self._id = int(self._answers.readline())

    def is_alive(self) -> bool:
        """Whether it has not ended yet."""
        return self.returncode is None and not select.select([self._control], [], [], 0.0)[0]

    def kill(self) -> None:
        """End it with SIGKILL; the id is its own until `wait`."""
        if self.returncode is None:
            os.kill(self._id, signal.SIGKILL)

    def wait(self, timeout: float = 120.0) -> int:
        """Return its exit status, as of `subprocess`."""
        if self.returncode is None:
            self._control.settimeout(timeout)
            self.returncode = int(self._answers.readline())
            self._answers.close()
            self._control.close()
        return self.returncode

    def communicate(self, said: str = "", *, timeout: float = 120.0) -> str:
        """Say the last that it hears, and return what it still says until its end."""
        deadline = time.monotonic() + timeout
        with self.stdin as stdin:
            stdin.write(said)
        with self.stdout:
            heard = b"".join(iter(lambda: self._read(deadline), b""))
        self.wait(max(deadline - time.monotonic(), 0.001))
        return heard.decode()

    def _read(self, deadline: float) -> bytes:
        if not select.select([self.stdout], [], [], max(deadline - time.monotonic(), 0.0))[0]:
            raise TimeoutError(f"{self._command} has not ended")
        return os.read(self.stdout.fileno(), 1 << 16)


class _Resident:
    """A process that has imported a library; it ends when nobody can ask it any more, at the latest with this one."""

    def __init__(self, library: str) -> None:
        imports = ["tests.contract.driver", "tests.integration.exporter_life", *_IMPORTS.get(library, [])]
        self._socket, its_socket = socket.socketpair()
        with its_socket:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.resident", *imports],
                # MLflow's telemetry would be a thread.
                env={**os.environ, "PYTHONPATH": SOURCES, "MLFLOW_DISABLE_TELEMETRY": "true"},
                cwd=ROOT,
                stdin=its_socket.fileno(),
                stdout=subprocess.DEVNULL,
            )
        atexit.register(self._end)

    def _end(self) -> None:
        self._socket.close()
        self._process.wait()

    def fork(self, descriptors: Sequence[int]) -> None:
        socket.send_fds(self._socket, [b"\n"], descriptors)


_resident = cache(_Resident)
