"""Ask a backend's reader, which runs in a process of its own, what it finds of a run."""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any

__all__ = ["answer_of"]

ROOT = Path(__file__).resolve().parents[2]

_SLOW_TO_IMPORT = {"mlflow", "wandb", "tensorboard"}


def answer_of(reader: str, run: Path, run_id: str, env: Mapping[str, str]) -> dict[str, Any]:
    """Return what a reader says, see `tests.contract.readers`."""
    if reader in _SLOW_TO_IMPORT:
        return _forked(reader).ask(run, run_id, env)
    command = [sys.executable, "-m", f"tests.contract.readers.{reader}", str(run), run_id]
    done = subprocess.run(command, env=dict(env), cwd=run, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


class _Forked:
    """A process that has imported a reader; it ends at the end of its input, at the latest with this one."""

    def __init__(self, reader: str) -> None:
        self._lock = Lock()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.contract.readers.forked", reader],
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "exporters")])},
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        atexit.register(self._end)

    def _end(self) -> None:
        with self._process:  # closes its input, and waits
            pass

    def ask(self, run: Path, run_id: str, env: Mapping[str, str]) -> dict[str, Any]:
        question = json.dumps({"run": str(run.resolve()), "id": run_id, "env": dict(env)})
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._lock:
            self._process.stdin.write(question + "\n")
            self._process.stdin.flush()
            told = json.loads(self._process.stdout.readline())
        assert "answer" in told, told["error"]
        answer: dict[str, Any] = told["answer"]
        return answer


_forked = cache(_Forked)
