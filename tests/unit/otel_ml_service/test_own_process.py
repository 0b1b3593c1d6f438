from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

NICEST = 19
"""What a process that is nicer than that has, on Linux and macOS."""

PROGRAM = """
import os, threading
from pathlib import Path
from otel_ml_service.process_limits import let_training_go_first
starter = os.getpid()
if child := os.fork():  # the service is no child of the job
    os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
threading.Thread(target=threading.Event().wait, daemon=True).start()
let_training_go_first(starter)
tasks = Path("/proc/self/task")
threads = [int(task.name) for task in tasks.iterdir()] if tasks.exists() else [0]
print({os.getpriority(os.PRIO_PROCESS, thread) for thread in threads})
group = Path("/proc/self/autogroup")
print((group.read_text() if group.exists() else "").split()[-1:])  # nothing for a session that began with the machine
"""


def said(*, of_its_own: bool, nice: int = 0) -> list[str]:
    """Return the niceness of all threads, and of the session, of a process that lets training go first."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        start_new_session=of_its_own,
        preexec_fn=lambda: os.nice(nice) and None,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


class TestLetTrainingGoFirst:
    def test_all_threads_and_the_session_are_nice(self) -> None:
        mine = os.getpriority(os.PRIO_PROCESS, 0)

        threads, session = said(of_its_own=True)

        assert threads == f"{{{min(mine + 5, NICEST)}}}"
        assert session in {"['5']", "[]"}

    def test_a_job_that_is_nice_itself_goes_first_all_the_same(self) -> None:
        mine = os.getpriority(os.PRIO_PROCESS, 0)

        threads, _ = said(of_its_own=True, nice=8)

        assert threads == f"{{{min(mine + 13, NICEST)}}}"

    def test_the_session_of_a_shell_stays_as_it_is(self) -> None:
        mine = os.getpriority(os.PRIO_PROCESS, 0)

        threads, session = said(of_its_own=False)

        assert threads == f"{{{mine}}}"
        assert session != "['5']"


FAULTS = """
import resource, sys
from otel_ml_service.process_limits import keep_freed_memory
if sys.argv[1] == "kept":
    keep_freed_memory()
bytes(20_000_000)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    bytes(20_000_000)[:-1]
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt() is GNU's")
class TestKeepFreedMemory:
    def test_what_a_commit_needs_is_not_asked_for_anew_at_the_next_one(self) -> None:
        kept, usual = (
            int(subprocess.run([sys.executable, "-c", FAULTS, how], capture_output=True, check=True).stdout)
            for how in ("kept", "usual")
        )

        assert kept < usual / 4
