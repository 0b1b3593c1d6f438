"""Spans that were chosen, by process and begin, in a temporary file: a run's need not fit in memory."""

from __future__ import annotations

import marshal
import sqlite3
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from otel_ml_service.findings.causal_order import shifts_within

__all__ = ["AS_RECORDED", "Clocks", "Flow", "Process", "SpanTable"]

_SCHEMA = """
PRAGMA journal_mode = OFF;
PRAGMA synchronous = OFF;
CREATE TABLE spans (id TEXT, parent TEXT, process INT, begin INT, end INT, axis TEXT, step INT, line BLOB);
CREATE TABLE links (cause TEXT, effect TEXT);
"""
# UNION: who is both linked and a parent leads there once.
_FLOWS = """
SELECT cause, effect, causes.begin < effects.begin FROM links
    JOIN spans AS causes ON causes.id = cause JOIN spans AS effects ON effects.id = effect
UNION
SELECT causes.id, effects.id, causes.begin < effects.begin FROM spans AS effects
    JOIN spans AS causes ON causes.id = effects.parent WHERE causes.process <> effects.process
"""
# Of two processes: shift of the cause − shift of the effect ≤ this, or an effect would end before its cause begins.
_BOUNDS = """
SELECT effects.process, causes.process, MIN(effects.end - causes.begin) FROM links
    JOIN spans AS causes ON causes.id = cause JOIN spans AS effects ON effects.id = effect
    WHERE causes.process <> effects.process GROUP BY 1, 2
"""
_AT_ONCE = 1000


class Process(NamedTuple):
    """A rank of a role."""

    role: str
    rank: int


class Flow(NamedTuple):
    """A span that led to another, in another process or by a link; `is_forward` where their clocks say so, too.

    Who it is says the id of its trace with its own: spans of two traces may have the same one.
    """

    cause: str
    effect: str
    is_forward: bool


class Clocks(NamedTuple):
    """How many processes' clocks were moved, by how many ns at most; `fit` where one shift each fits all links."""

    moved: int
    most_ns: int
    fit: bool


AS_RECORDED = Clocks(0, 0, fit=True)


class SpanTable:
    """Spans as `spans.jsonl` has them, and which led to which. SQLite keeps the most in a file that has no name.

    Only this process reads it, so a span is kept as `marshal` writes it.
    """

    def __init__(self) -> None:
        self._database = sqlite3.connect("", isolation_level=None)
        self._database.executescript(_SCHEMA)
        self._database.execute("BEGIN")
        self._processes: dict[Process, int] = {}
        self._rows: list[tuple[object, ...]] = []
        self._shifts: dict[int, int] = {}
        self.count = 0

    @property
    def processes(self) -> list[Process]:
        """Who has spans."""
        return list(self._processes)

    def add(self, span: dict[str, Any]) -> None:
        """Add a span, once."""
        process = self._processes.setdefault(Process(span["role"], span["rank"]), len(self._processes))
        trace, parent, begin = span["trace_id"], span["parent_id"], span["start_ns"]
        own = trace + span["span_id"]
        where = span["axis"], span["step"], marshal.dumps(span)
        # Without a parent it stays empty. A clock that was set back must not end a span before it begins.
        row = own, parent and trace + parent, process, begin, max(begin, span["end_ns"]), *where
        self._rows.append(row)
        self.count += 1
        if links := span.get("links"):
            pairs = ((link["trace_id"] + link["span_id"], own) for link in links)
            self._database.executemany("INSERT INTO links VALUES (?, ?)", pairs)
        if len(self._rows) >= _AT_ONCE:
            self._write()

    def align_clocks(self) -> Clocks:
        """Move the clocks of processes so that nothing ends before what it is linked to begins: see `causal_order`."""
        self._write()
        self._database.execute("CREATE INDEX IF NOT EXISTS by_id ON spans (id)")
        processes = self.processes
        found = self._database.execute(_BOUNDS)
        shifts = shifts_within({(processes[effect], processes[cause]): most for effect, cause, most in found})
        if shifts is None:
            return Clocks(0, 0, fit=False)
        self._shifts = {self._processes[Process(*one)]: shift for one, shift in shifts.items() if shift}
        moved = ((shift, shift, process) for process, shift in self._shifts.items())
        self._database.executemany("UPDATE spans SET begin = begin + ?, end = end + ? WHERE process = ?", moved)
        return Clocks(len(self._shifts), max(map(abs, self._shifts.values()), default=0), fit=True)

    def flows(self) -> Iterator[Flow]:
        """Yield what led to what, as far as both are here: links, and parents in other processes."""
        self._write()
        self._database.execute("CREATE INDEX IF NOT EXISTS by_id ON spans (id)")
        for cause, effect, is_forward in self._database.execute(_FLOWS):
            yield Flow(cause, effect, bool(is_forward))

    def of(self, process: Process) -> Iterator[dict[str, Any]]:
        """Yield the spans of a process by their begin, each before those inside of it."""
        self._write()
        self._database.execute("CREATE INDEX IF NOT EXISTS by_begin ON spans (process, begin)")
        # Who is around another ends later, or comes later: a timer is recorded when it stops.
        asked = "SELECT line FROM spans WHERE process = ? ORDER BY begin, end DESC, rowid DESC"
        number = self._processes[process]
        shift = self._shifts.get(number, 0)
        for (line,) in self._database.execute(asked, (number,)):
            span = marshal.loads(line)
            yield {**span, "start_ns": span["start_ns"] + shift, "end_ns": span["end_ns"] + shift} if shift else span

    def begins(self, axis: str) -> Mapping[int, int]:
        """Return step → when its first span began."""
        self._write()
        asked = "SELECT step, MIN(begin) FROM spans WHERE axis = ? GROUP BY step"
        return dict(self._database.execute(asked, (axis,)).fetchall())

    def close(self) -> None:
        """Give the file back."""
        self._database.close()

    def _write(self) -> None:
        rows, self._rows = self._rows, []
        self._database.executemany("INSERT INTO spans VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)
