"""The few lines a person sees: on stderr, whole lines at once, under progress bars too (docs/protocol.md §3.8)."""

from __future__ import annotations

import contextlib
import os
import select
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TextIO

from otel_ml.printable import printable
from otel_ml.redaction import redacted

__all__ = ["Console", "is_first_of_host", "is_watched", "page_line", "shown_path", "started_line"]

_CLEAR_LINE = "\r\x1b[K"
"""In a terminal a progress bar stands on the current line; it is drawn again at its next update."""


_AT_ONCE = select.PIPE_BUF
"""Bytes that a descriptor takes without waiting, where it says that it takes any."""

_TIMEOUT_S = 0.1
"""Seconds for which whoever prints waits for somebody to read: a pipe that is read has room again in less."""

_KEPT = 100
"""Lines that wait for somebody to read."""


class Console:
    """Writes lines for the job (global rank 0) or for this host (local rank 0).

    A stderr that nobody reads (a pager, a stopped terminal) holds nobody up: what it has no room for waits here.

    Args:
        is_quiet: nothing is to be printed.
    """

    def __init__(self, *, is_quiet: bool) -> None:
        self.is_quiet = is_quiet
        self._waiting: deque[str] = deque(maxlen=_KEPT)

    def line(self, text: str) -> None:
        """Write one line in one write, so that lines of several processes do not mix."""
        self._write(f"otel_ml: {printable(part)}" for part in redacted(text).splitlines())

    def plain(self, lines: Sequence[str]) -> None:
        """Write lines that are not ours, those of the exporter `console`; a terminal's width cuts them."""
        if lines:
            self._write(_cut(printable(redacted(line))) for line in lines)

    def catch_up(self, timeout_s: float = 0.0) -> None:
        """Write what there was no room for, if somebody reads by now."""
        while self._waiting and self._say(self._waiting[0], timeout_s):
            self._waiting.popleft()

    def _write(self, lines: Iterable[str]) -> None:
        if self.is_quiet:
            return
        start = _CLEAR_LINE if is_watched() else ""
        # Behind what there was no room for, so that lines stay in their order.
        self._waiting.extend(_pieces(f"{start}{line}\n" for line in lines))
        self.catch_up(_TIMEOUT_S)

    def _say(self, text: str, timeout_s: float) -> bool:
        """Write to whatever is stderr by now; return whether there was room, or never will be any."""
        stream = sys.stderr
        if stream is None:  # pythonw, daemons
            return True
        # A closed or broken stderr must not end a training run, nor one that a signal's handler finds in use, nor what
        # a program has put in its place.
        with contextlib.suppress(Exception):
            descriptor = _descriptor(stream)
            if descriptor is not None:
                # Asked first: poll() says of a closed descriptor that it is ready.
                if _is_gone(descriptor):
                    return True
                if not _is_writable(descriptor, timeout_s):
                    return False
            stream.write(text)
            stream.flush()
        return True


def _pieces(lines: Iterable[str]) -> Iterator[str]:
    """Return lines in as few texts as a descriptor takes at once, so that those of several processes do not mix."""
    piece, size = "", 0
    for line in lines:
        more = len(line.encode(errors="replace"))
        # A line that is longer by itself is a piece of its own.
        if piece and size + more > _AT_ONCE:
            yield piece
            piece, size = "", 0
        piece, size = piece + line, size + more
    if piece:
        yield piece


def _is_writable(descriptor: int, timeout_s: float) -> bool:
    """Whether a descriptor takes a line without waiting, or is of a kind that is not asked."""
    writable = select.poll()
    writable.register(descriptor, select.POLLOUT)
    return bool(writable.poll(1000 * timeout_s))


def _cut(line: str) -> str:
    """Return a line as long as the terminal is wide; all of it where there is none."""
    descriptor = None if sys.stderr is None else _descriptor(sys.stderr)
    try:
        width = 0 if descriptor is None else os.get_terminal_size(descriptor).columns
    except OSError:
        return line
    return line if not width or len(line) <= width else f"{line[: width - 1]}…"


def _descriptor(stream: TextIO) -> int | None:
    """Return the number of the file behind a stream; None where there is none: of a notebook, a test, a program."""
    try:
        number = stream.fileno()
    except Exception:  # noqa: BLE001 (a program's own)
        return None
    return number if type(number) is int else None


def _is_gone(descriptor: int) -> bool:
    """Whether the descriptor of a stream was closed: what it is given then stays in it, and Python exits with 120."""
    try:
        os.fstat(descriptor)
    except OSError:
        return True
    return False


def started_line(called: str, where: str, exporters: tuple[str, ...]) -> str:
    """Return the line at the start.

    Examples:
        >>> started_line("digits/calm-dune-421", "./otel-ml-runs/digits/01JX", ("tensorboard", "jsonl"))
        'run digits/calm-dune-421 → ./otel-ml-runs/digits/01JX  (tensorboard, jsonl)'
    """
    shown = f"  ({', '.join(exporters)})" if exporters else ""
    return f"run {called} → {where}{shown}"


def page_line(address: str) -> str:
    """Return the line that says where to look while the run goes on."""
    return f"look at it while it trains: {address}"


_LOCAL_RANKS = (
    *("OTEL_ML_LOCAL_RANK", "LOCAL_RANK", "FLUX_TASK_LOCAL_ID", "OMPI_COMM_WORLD_LOCAL_RANK", "PALS_LOCAL_RANKID"),
    *("MPI_LOCALRANKID", "SUBMITIT_LOCAL_LOCALID", "SLURM_LOCALID"),
)
"""In order: what is started within a step of SLURM comes before the step."""


def is_first_of_host() -> bool:
    """Whether this process speaks for its host, as far as its environment says."""
    return next((os.environ[name] for name in _LOCAL_RANKS if os.environ.get(name)), "0") == "0"


def is_watched() -> bool:
    """Whether stderr is a terminal: a person is there."""
    try:
        return sys.stderr is not None and sys.stderr.isatty() is True
    except Exception:  # noqa: BLE001 (a program's own, or a closed one)
        return False


def shown_path(path: Path) -> str:
    """Return a path as a person would type it from here."""
    try:
        return f"./{path.relative_to(Path.cwd()).as_posix()}"
    except (ValueError, OSError):
        return str(path)
