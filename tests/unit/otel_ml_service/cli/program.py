"""`otel-ml` as a process of its own, with an environment that holds nothing of the machine's."""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from pathlib import Path

__all__ = ["PROGRAM", "Run", "environment", "in_a_terminal", "otel_ml"]

Run = Callable[..., tuple[int, str, str]]
"""A command in this process: its arguments, and (status, standard output, standard error)."""

PROGRAM = [sys.executable, "-m", "otel_ml_service"]


def environment(base: Path, **settings: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    path = os.pathsep.join(entry for entry in sys.path if entry)
    return {**kept, "PYTHONPATH": path, "OTEL_ML_DIR": str(base), "XDG_RUNTIME_DIR": str(base), **settings}


def otel_ml(base: Path, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PROGRAM, *arguments], env=environment(base, **settings), capture_output=True, text=True, check=False
    )


def in_a_terminal(
    base: Path, *arguments: str, columns: int = 80, into: Path | None = None, **settings: str
) -> tuple[int, str]:
    """Run it in a terminal; return its status and what it wrote there, with the escape sequences.

    Args:
        into: a file for its standard output, as of `otel-ml … > into`.
    """
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    variables = environment(base, TERM="xterm", **settings)
    variables.pop("COLUMNS", None)
    with into.open("wb") if into else contextlib.nullcontext(theirs) as output:
        process = subprocess.Popen([*PROGRAM, *arguments], env=variables, stdout=output, stderr=theirs)
    os.close(theirs)
    written = b""
    while chunk := _read(ours):
        written += chunk
    os.close(ours)
    return process.wait(), written.decode()


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65_536)
    except OSError:  # Linux says so once nobody has the other side
        return b""
