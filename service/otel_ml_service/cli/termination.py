"""What a command has begun is put away when SIGTERM or SIGHUP ends it, as after Ctrl-C."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from otel_ml_service.exit_status import exit_status

__all__ = ["put_away_when_terminated"]


@contextmanager
def put_away_when_terminated() -> Iterator[None]:
    """Have what is inside end with its `finally` blocks where a signal would end the process.

    Such a signal comes from a terminal that closes, from systemd, from `timeout`. One that whoever started the process
    has it ignore, as `nohup` does, stays ignored.
    """
    ends = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, _end) for number in ends}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end(number: int, frame: object) -> NoReturn:
    # An exception, so that `finally` blocks run.
    raise SystemExit(exit_status(-number))
