"""One mutant's trial: the tests of its line, in a process that begins with its slow imports done."""

from __future__ import annotations

import itertools
import json
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

__all__ = ["HANGS", "KILLED", "SURVIVED", "UNTESTED", "Outcome", "Trials"]

KILLED, SURVIVED, UNTESTED = "killed", "survived", "untested"
HANGS = "it hangs"

_MEMORY = 16 << 30
"""Bytes of address space: a mutant that never stops growing must not take the machine."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a mutant.

    Attributes:
        verdict: `KILLED`, `SURVIVED`, or `UNTESTED` where no test runs its line.
        seconds: what that took.
        by: the test that failed; what happened where none did: it hung, or no test could be imported.
    """

    verdict: str
    seconds: float = 0.0
    by: str = ""


class Trials:
    """Tries mutants one after the other in a copy of the tree.

    Args:
        copy: the copy; each mutant is written into it, and taken out again.
    """

    def __init__(self, copy: Path) -> None:
        import hypothesis
        import numpy
        import opentelemetry.proto.collector.metrics.v1.metrics_service_pb2
        import pytest

        del hypothesis, numpy, opentelemetry, pytest  # each process begins with them
        self._copy = copy
        self._times = itertools.count(int(time.time()))

    def of(self, file: str, mutated: bytes, tests: Sequence[str], timeout: float) -> Outcome:
        """Run tests against a mutated module until one fails.

        Args:
            timeout: the seconds after which the mutant hangs: it is killed, too.
        """
        path = self._copy / file
        was = path.read_bytes()
        started = time.monotonic()
        try:
            self._write(path, mutated)
            by = self._failed(tests, timeout)
        finally:
            self._write(path, was)
        return Outcome(KILLED if by else SURVIVED, time.monotonic() - started, by)

    def _write(self, path: Path, text: bytes) -> None:
        """Write a module. What Python compiled of the one before has another time, so it is compiled again."""
        path.write_bytes(text)
        changed = next(self._times)
        os.utime(path, (changed, changed))

    def _failed(self, tests: Sequence[str], timeout: float) -> str:
        report = self._copy / "report.json"
        report.unlink(missing_ok=True)
        pid = os.fork()
        if pid == 0:
            _run(self._copy, report, tests)
        status = _waited_for(pid, time.monotonic() + timeout)
        if status is None:
            return HANGS
        if status == 0:
            return ""
        failed: list[str] = json.loads(report.read_text())["failed"] if report.exists() else []
        return failed[0] if failed else "nothing can be imported, or the process dies"


def _waited_for(pid: int, deadline: float) -> int | None:
    """Return a process's status; None where it had to be ended. What it has started ends with it."""
    try:
        while time.monotonic() < deadline:
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                return status
            time.sleep(0.02)  # between two looks: waitpid has no timeout
        return None
    finally:
        _end_group(pid)


def _end_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    try:
        os.waitpid(pid, 0)
    except ChildProcessError:
        return


def _run(copy: Path, report: Path, tests: Sequence[str]) -> None:
    """Be pytest in the copy, and end: nothing of this process, which has the tree itself on its path, is used."""
    os.setsid()
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    os.chdir(copy)
    roots = [str(copy), str(copy / "exporters"), str(copy / "service")]
    os.environ |= {"PYTHONPATH": os.pathsep.join(roots), "MUTANTS_REPORT": str(report), "CI": "1"}
    sys.path[:] = roots + [path for path in sys.path if path not in ("", os.environ.get("PWD", ""))]
    for name in [name for name in sys.modules if name.partition(".")[0] == "tests"]:
        del sys.modules[name]
    sys.modules["__main__"] = ModuleType("__main__")
    sys.argv = ["pytest"]
    with (copy / "log").open("wb") as log:
        for stream in (1, 2):
            os.dup2(log.fileno(), stream)
    arguments = ["-x", "-q", "-n", "0", "-p", "no:randomly", "-p", "tests.mutants.session", "--tb=short"]
    arguments += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # of plug-ins that are imported already
    code = 1
    try:
        import pytest

        code = int(pytest.main([*arguments, *tests]))
    except BaseException:  # noqa: BLE001 (the process ends here, and says why)
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)
