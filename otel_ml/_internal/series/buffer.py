"""The one flat list every recording call appends to.

A record is four items: `records += (series, step, value, time_ns)`, with `records = RECORDS`; the values of a row
(`row.Row`) follow its four: `(row, step, None, time_ns, *values)`. To add a tuple in place and to take a prefix
(`part = RECORDS[:n]; del RECORDS[:n]`) are each one C call, atomic under the GIL, so callers take no lock. The list is
never replaced: a caller that had loaded the old one would append to it unseen (measured: 596 of 1.2 million records
lost).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

__all__ = ["LIMIT", "MOST", "RECORDS", "STRIDE", "Records", "begin_run", "begin_with", "sleep", "stay_awake", "take"]

STRIDE = 4
LIMIT = STRIDE * 4_096
"""Items from which a caller has them folded: a tight loop. It takes 1 to 2 ms; where each call has a step of its own,
4 to 9. A row holds more values in as many items."""

MOST = 8 * LIMIT
"""Items from which a caller waits for a fold that is under way, too: about 1 MB for each thread that records."""


class Records(list[Any]):
    """The buffer's type: one of our own, so that it can be put to sleep at no cost for those awake."""

    __slots__ = ()


class Asleep(Records):
    """The buffer of a process that may never record: a forked child, a program that only imports otel_ml."""

    __slots__ = ()

    def __iadd__(self, items: Iterable[Any], /) -> Asleep:  # type: ignore[misc] # a list that is not added to
        """Take the first record, and start what sends it."""
        # Awake first: the next record, also of another thread, must not begin a second run.
        stay_awake()
        RECORDS.extend(items)
        begin_run()
        return self


RECORDS: Records = Records()


def take() -> list[Any]:
    """Remove and return the whole records that are there now. One taker at a time: the fold lock."""
    # The length is read once: both calls below then speak of the same prefix, whatever is appended between them.
    n = len(RECORDS)
    part = RECORDS[:n]
    del RECORDS[:n]
    return part


_begin: Callable[[], bool] = bool


def begin_with(begin: Callable[[], bool]) -> None:
    """Have `begin` begin runs: it returns whether there is one then. What records is loaded before what begins."""
    global _begin
    _begin = begin


def begin_run() -> bool:
    """Begin a run where the environment asks for one and there is none; return whether there is one."""
    return _begin()


def sleep() -> None:
    """Begin a run at the next record."""
    # Changing the class costs callers nothing while awake. A flag would be one more load in every call.
    RECORDS.__class__ = Asleep


def stay_awake() -> None:
    """Begin nothing at the next record."""
    RECORDS.__class__ = Records
