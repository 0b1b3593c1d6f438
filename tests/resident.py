"""Imports what is slow to import, and forks a process each time one is asked for: `python -m tests.resident MODULE …`.

Its stdin is a socket, on which a byte comes with the descriptors of a process: stdin, stdout, stderr, and a socket of
its own. There stands what it is to be, a line `{"module": …, "arguments": […], "env": {…}, "cwd": …}`; the answers are
lines as well, its process id, and its status once it has ended. The other side is `tests.forked`.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import runpy
import socket
import sys
import threading
from contextlib import suppress
from typing import Any


def main() -> None:
    for module in sys.argv[1:]:
        importlib.import_module(module)
    assert threading.active_count() == 1, threading.enumerate()  # a forked process has none of the others
    gc.freeze()  # else the first collection of each process copies all that was imported
    with socket.socket(fileno=os.dup(0)) as asked:
        life = next_life(asked)
    if life is not None:
        live(**life)


def next_life(asked: socket.socket) -> dict[str, Any] | None:
    """Return what to be, in a new process; None in this one, once nobody can ask any more."""
    while True:
        told, descriptors, _, _ = socket.recv_fds(asked, 1, 4)
        if not told:
            return None
        if os.fork() == 0:
            return kept_life(descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        reap()


def reap() -> None:
    """Let go of the keepers that have ended."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def kept_life(descriptors: list[int]) -> dict[str, Any]:
    """Return what to be, in a process whose parent is its keeper."""
    *streams, own = descriptors
    with socket.socket(fileno=own) as control, control.makefile() as lines:
        life: dict[str, Any] = json.loads(lines.readline())
        child = os.fork()
        for at, stream in enumerate(streams):
            if child == 0:
                os.dup2(stream, at)
            os.close(stream)
        if child:
            keep(child, control)
    return life


def keep(child: int, control: socket.socket) -> None:
    """Tell the id of a process, and its end; until both were heard the id is nobody else's."""
    control.sendall(b"%d\n" % child)
    end = os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    assert end is not None
    with suppress(BrokenPipeError):  # the test has ended before it
        control.sendall(b"%d\n" % (end.si_status if end.si_code == os.CLD_EXITED else -end.si_status))
    control.recv(1)
    os.waitpid(child, 0)
    os._exit(0)


def live(module: str, arguments: list[str], env: dict[str, str], cwd: str) -> None:
    """Be what `python -m module …` would be, started with this environment and in this folder."""
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    sys.argv[1:] = arguments
    sys.modules.pop(module, None)  # imported for what it imports; `runpy` warns of it
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
