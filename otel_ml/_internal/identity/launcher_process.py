"""The launcher's own process, among those that led to this one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

from otel_ml._internal.identity.common_file import common_file
from otel_ml._internal.identity.started_by_ps import started_ns_by_ps
from otel_ml.wire.pid_namespace import is_in_container
from otel_ml.wire.rendezvous import boot_id
from otel_ml.wire.short_digest import short_digest

__all__ = [
    "Process",
    "ancestors",
    "environ_of",
    "forked_by",
    "forked_from",
    "is_alive",
    "launcher_process",
    "makers",
    "most_agents",
    "ranks_below",
    "start_time",
    "started_ns",
    "through_shells",
    "was_started_with",
]

Process = tuple[int, int]
"""A process id, and its `start_time`: the system gives the number again."""

_HAS_PROC = Path("/proc/self/stat").exists()

_MOST = 64
"""Processes between a rank and its launcher: wrappers that bind cores or set up a container."""

_SHELLS = frozenset({"bash", "sh", "dash", "zsh", "ksh", "ash", "busybox"})
"""Programs that go on in a copy of themselves, as in `( … ) &` and in a pipeline."""

_OF_MULTIPROCESSING = ("--multiprocessing-fork", "multiprocessing.forkserver", "loky.backend.popen_loky")
"""What their commands have in common, each of one way to make processes."""


def launcher_process(ppid: int, variable: str) -> int:
    """Return the nearest ancestor that was started without `variable`, by which the launcher tells ranks apart.

    A rank may run in a script that the launcher has started for it: then its parent is another one for each rank.
    """
    pid = ppid
    for _ in range(_MOST):
        # A process that has the variable is below the launcher, so the search goes on above it. An environ that may not
        # be read, as that of another user's process, is empty: it ends here.
        above = _parent(pid) if variable and _told(pid, variable) is not None else 0
        # Process 1 of a machine has adopted what has lost its launcher; that of a container may be one.
        if above < 1 or (above == 1 and not is_in_container()):
            return pid
        pid = above
    return ppid


def was_started_with(variable: str) -> bool:
    """Whether this process was started with a variable: one that runs a function has been given it afterwards."""
    return _told(os.getpid(), variable) is not None


def environ_of(pid: int) -> dict[str, str]:
    """Return the environment that a process was started with; nothing where the system does not show it."""
    told = (word.partition("=") for word in _words(pid, "environ") if "=" in word)
    return {name: value for name, _, value in told}


def forked_from(pid: int) -> Iterator[int]:
    """Yield the shells of which a shell is a copy, the nearest first: what a script writes as one may be several."""
    for _ in range(_MOST):
        above, image = _parent(pid), _words(pid, "cmdline")
        # A subshell has started no program, so it has the command line of the shell that it is a copy of.
        if above <= 0 or not _is_shell(pid) or not _is_shell(above) or _words(above, "cmdline") != image:
            return
        pid = above
        yield pid


def forked_by() -> int:
    """Return the parent of this process if it goes on in a copy of it, which has started no program; else 0."""
    pid, parent = os.getpid(), os.getppid()
    return parent if _is_copy(pid, parent) else 0


def makers() -> Iterator[int]:
    """Yield the processes that have made this one by forks and `multiprocessing`, the nearest first: one program."""
    pid = os.getpid()
    for _ in range(_MOST):
        above = _parent(pid)
        if above <= 0 or not (_is_copy(pid, above) or _is_of_multiprocessing(pid)):
            return
        pid = above
        yield pid


def _is_copy(pid: int, parent: int) -> bool:
    """Whether a process is a fork: it has the stack of its parent, which is elsewhere in each program that starts."""
    # Both are of the last exec(), so a fork has its parent's. Two that are empty, because they may not be read, tell
    # nothing.
    is_same = all(_words(pid, file) == _words(parent, file) != [] for file in ("cmdline", "environ"))
    return is_same and _stack(pid) == _stack(parent)


def _is_of_multiprocessing(pid: int) -> bool:
    """Whether a process runs the code of its parent: one that is spawned, a server of forks, and those of joblib."""
    return any(sign in word for word in _words(pid, "cmdline") for sign in _OF_MULTIPROCESSING)


def through_shells(pid: int) -> Iterator[int]:
    """Yield a process and, as long as these are shells, those above: who has started what runs below."""
    for _ in range(_MOST):
        yield pid
        if not _is_shell(pid):
            return
        pid = _parent(pid)


def ranks_below(pid: int, variable: str) -> set[str]:
    """Return which ranks run below a process, as far as they were started with `variable`."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        rank = _told(int(folder.name), variable)
        if rank is not None and any(above == pid for above, _ in ancestors(int(folder.name))):
            found.add(rank)
    return found


def ancestors(pid: int) -> Iterator[Process]:
    """Yield the parents of a process, the nearest first."""
    for _ in range(_MOST):
        pid = _parent(pid)
        if pid <= 0:
            return
        yield pid, start_time(pid)


def most_agents(agent: int) -> int:
    """Return by how many a torchrun may be joined, itself included: they have one job, however many have come so far.

    `--nnodes 1:2` begins with one agent or two.
    """
    words = _words(agent, "cmdline")
    # `--nnodes=1:2` has the number in the same word, `--nnodes 1:2` in the next one. The command line stands before
    # `PET_NNODES`, which torchrun takes for a default.
    said = [word.partition("=")[2] or after for word, after in zip(words, [*words[1:], ""], strict=True) if _asks(word)]
    said += [word.partition("=")[2] for word in _words(agent, "environ") if word.startswith("PET_NNODES=")]
    # The most of `1:2` is 2; `2` has no colon and is the most itself.
    most = said[0].rpartition(":")[2] if said else ""
    return int(most) if most.isdecimal() else 1


def start_time(pid: int) -> int:
    """Return what tells a process from others of its number, the same for all who ask; 0 where there is none.

    That is the boot, and when it started, in ticks since then: who sets the clock of the day changes nothing.
    """
    ticks = _ticks(pid)
    # 40 bits of ticks, of which there are 100 a second, are 348 years.
    return _started_ns_elsewhere(pid) if ticks is None else _boot_number() << 40 | ticks


def started_ns(pid: int) -> int:
    """Return the time at which a process started, the same for all who ask; 0 where there is none."""
    ticks = _ticks(pid)
    if ticks is None:
        return _started_ns_elsewhere(pid)
    return _boot_s() * 10**9 + ticks * 10**9 // os.sysconf("SC_CLK_TCK")


def is_alive(process: Process) -> bool:
    """Whether a process runs; one that has ended, and that nobody has asked for, does not."""
    pid, started = process
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        # Without /proc, as on macOS, the start time alone tells: there is none of a process that has ended.
        state = ""
    return state not in {"Z", "X"} and start_time(pid) == started


def _ticks(pid: int) -> int | None:
    """Return when a process started, in ticks since the boot; None where there is none, or the system has no /proc."""
    try:
        # A program's name, in parentheses, may have some in it: numbers stand behind the last one. 19 is starttime.
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except (OSError, IndexError, ValueError):
        return None


@cache
def _boot_number() -> int:
    return int(short_digest(boot_id()), 16)


@cache
def _boot_s() -> int:
    """Return the time of the boot as the first who asked has seen it: the system's own changes with each set clock."""
    seen = 0
    with suppress(OSError, StopIteration):
        lines = Path("/proc/stat").read_text().splitlines()
        seen = int(next(line for line in lines if line.startswith("btime ")).split()[1])
    name = f"boot-{short_digest(boot_id())}.txt"
    with suppress(OSError, ValueError), common_file(name, os.O_CREAT) as file:
        # Another process may have seen another time, before the clock was set: all use the one that was written first.
        if file.text:
            return int(file.text)
        file.write(str(seen))
    return seen


def _started_ns_elsewhere(pid: int) -> int:
    """Return when a process started, where there is no /proc; 0 where there is one, and the process is not in it."""
    return 0 if _HAS_PROC else started_ns_by_ps(pid)


def _asks(word: str) -> bool:
    return word.partition("=")[0] in {"--nnodes", "-nnodes"}


def _told(pid: int, variable: str) -> str | None:
    """Return what a process was started with."""
    return environ_of(pid).get(variable)


def _is_shell(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/exe").readlink().name in _SHELLS
    except OSError:
        return False


def _words(pid: int, file: str) -> list[str]:
    """Return what a process was started with; nothing where the system does not show it."""
    try:
        return Path(f"/proc/{pid}/{file}").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []


def _parent(pid: int) -> int:
    return _field(pid, 1)  # ppid


def _stack(pid: int) -> int:
    return _field(pid, 25)  # startstack


def _field(pid: int, index: int) -> int:
    """Return one of the numbers of proc_pid_stat(5), from the state on; 0 where the system does not show it."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[index])
    except (OSError, IndexError, ValueError):
        return 0
