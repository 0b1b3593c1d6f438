from __future__ import annotations

import json
import os
import platform
import resource
import subprocess
import sys
from collections.abc import Callable

import pytest

from otel_ml_service.process_limits import allow_open_files, most_files, most_files_of_a_service

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


LIMITS = """
import gc, json, os, resource, sys
from otel_ml_service.process_limits import allow_open_files, look_for_garbage_rarely, most_files, open_files
from otel_ml_service.process_limits import most_files_of_a_service
resource.setrlimit(resource.RLIMIT_NOFILE, (128, 200))
before = [resource.getrlimit(resource.RLIMIT_NOFILE)[0], most_files_of_a_service()]
allow_open_files()
after = [*resource.getrlimit(resource.RLIMIT_NOFILE), most_files(), most_files_of_a_service()]
few = open_files()
held = [os.open("/dev/null", os.O_RDONLY) for _ in range(10)]
more = open_files()
try:
    while True:
        held.append(os.open("/dev/null", os.O_RDONLY))
except OSError:
    beyond = open_files()
for handle in held:
    os.close(handle)
look_for_garbage_rarely()
rarely = [gc.get_threshold(), gc.get_freeze_count() > 1_000, gc.isenabled()]
print(json.dumps([before, after, more - few, beyond == sys.maxsize, rarely]))
"""


class TestOpenFiles:
    def test_a_service_takes_all_that_it_may_have_and_keeps_some_back(self) -> None:
        done = subprocess.run([sys.executable, "-c", LIMITS], capture_output=True, check=True)

        before, after, further, is_beyond_any_limit, garbage = json.loads(done.stdout)
        assert before == [128, 200 - 64]
        assert after == [200, 200, 200 - 64, 200 - 64]
        assert (further, is_beyond_any_limit) == (10, True)
        assert garbage == [[50_000, 20, 100], True, True]

    @pytest.mark.parametrize("most", [most_files, most_files_of_a_service])
    def test_who_may_have_any_number_is_not_bound(
        self, monkeypatch: pytest.MonkeyPatch, most: Callable[[], int]
    ) -> None:
        for hard in (resource.RLIM_INFINITY, 4096):
            monkeypatch.setattr(resource, "getrlimit", lambda _, hard=hard: (hard, hard))
            assert most() == (sys.maxsize if hard == resource.RLIM_INFINITY else 4096 - 64)

    def test_where_a_system_does_not_give_what_it_allows_as_many_as_it_gives_are_taken(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked: list[tuple[int, int]] = []

        def of_macos(_: int, limits: tuple[int, int]) -> None:
            asked.append(limits)
            if limits[0] == resource.RLIM_INFINITY:
                raise ValueError("current limit exceeds maximum limit")

        monkeypatch.setattr(resource, "getrlimit", lambda _: (256, resource.RLIM_INFINITY))
        monkeypatch.setattr(resource, "setrlimit", of_macos)

        allow_open_files()

        assert asked == [(resource.RLIM_INFINITY, resource.RLIM_INFINITY), (10_240, resource.RLIM_INFINITY)]
