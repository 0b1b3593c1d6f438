"""Lives of an exporter that end inside of `export()`: `python -m otel_ml_exporters.contract.interrupted EXPORTER …`.

The arguments are an exporter, its options and a folder, as of `writer`.
Each life is a fork that exports some rows from its `position()` on. All but the first and the last one are killed, each
at another of the calls that an `export()` makes. The `seq` of the last row is written to stdout; nothing is, where the
exporter has no position. The exit status is 3 where its library cannot be forked.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

from otel_ml_exporters.contract.case import CANNOT_BE_FORKED, exporter_of
from otel_ml_exporters.contract.stream import rows, run_in
from otel_ml_exporters.exporter import Exporter
from otel_ml_exporters.records import RunInfo

__all__ = ["live_and_die"]

_CLOSE_S = 30.0
_ROWS = 20
_SPREAD, _LAST = 4, 10
"""At how many calls it is killed: spread over all, and at the end, where what was stored is noted."""


class _Calls:
    """Counts calls into C, and returns from there, of this thread: what reaches a disk or a server is one.

    Args:
        kill_at: at which of them the process is killed; 0 for never.
    """

    def __init__(self, kill_at: int) -> None:
        self.count = 0
        self._kill_at = kill_at

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        # `c_call`, `c_return` and `c_exception`; calls of Python's own functions write nothing.
        if not event.startswith("c_"):
            return
        self.count += 1
        if self.count == self._kill_at:
            os.kill(os.getpid(), signal.SIGKILL)


def live_and_die(make: Callable[[], Exporter], run: RunInfo) -> None:
    """Live and die again and again, in a process without threads."""
    calls = _life(make, run, 0)
    if calls is None:
        return
    if not calls:
        sys.exit("An export() that was not killed has not returned.")
    # Each of these lives begins where the last one got to, whole or not.
    for at in _moments(calls):
        _life(make, run, at)
    _life(make, run, 0)
    sys.stdout.write(f"{_position(make, run)}\n")


def _moments(calls: int) -> Iterator[int]:
    """Yield at which of so many calls a life ends."""
    yield from range(1, calls - _LAST, max(1, (calls - _LAST) // _SPREAD))
    yield from range(max(1, calls - _LAST), calls + 1)


def _life(make: Callable[[], Exporter], run: RunInfo, kill_at: int, timeout_s: float = _CLOSE_S) -> int | None:
    """Return how many calls the `export()` of a fork has made; 0 of one that was killed, None without a position.

    Raises:
        TimeoutError: it has no end: its library cannot be forked once it is imported.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writing, str(_exported(make(), run, kill_at)).encode())
        except BaseException:  # noqa: BLE001 (the process ends here, and says why)
            traceback.print_exc()
        finally:
            # What this process has registered for its end is not the fork's.
            os._exit(0)
    # Else the pipe would not end with the fork.
    os.close(writing)
    with os.fdopen(reading) as said:
        is_heard, _, _ = select.select([said], [], [], timeout_s)
        if not is_heard:
            os.kill(child, signal.SIGKILL)
        calls = said.read()
    os.waitpid(child, 0)
    if not is_heard:
        raise TimeoutError
    return None if calls == "None" else int(calls or 0)


def _exported(exporter: Exporter, run: RunInfo, kill_at: int) -> int | None:
    exporter.start(run)
    position = exporter.position()
    if position is None:
        return None
    records, calls = rows(position + 1, position + _ROWS), _Calls(kill_at)
    # Of `export()` alone: the calls of `start()` are those of a run that goes on.
    sys.setprofile(calls)
    exporter.export(records)
    sys.setprofile(None)
    exporter.force_flush(_CLOSE_S)
    exporter.shutdown(_CLOSE_S, None)
    return calls.count


def _position(make: Callable[[], Exporter], run: RunInfo) -> int | None:
    exporter = make()
    exporter.start(run)
    position = exporter.position()
    exporter.shutdown(_CLOSE_S, None)
    return position


def _maker(name: str, options: Mapping[str, Any]) -> Callable[[], Exporter]:
    exporter_of(name, options)  # imported once, for all forks
    return lambda: exporter_of(name, options)


if __name__ == "__main__":
    try:
        live_and_die(_maker(sys.argv[1], json.loads(sys.argv[2])), run_in(Path(sys.argv[3])))
    except TimeoutError:
        sys.exit(CANNOT_BE_FORKED)
