"""How far each exporter of a run is, and which of these marks are on the disk."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

__all__ = ["ExporterMarks", "Mark"]


@dataclass(frozen=True, slots=True)
class Mark:
    """How far an exporter is: `seq` stored in its backend, and values that will never be, by reason."""

    seq: int = 0
    lost: Mapping[str, int] = field(default_factory=dict)


class ExporterMarks:
    """The marks of a run: exporters' threads set them while the engine's thread commits them.

    Args:
        connection: of `run.db`, whose marks these are.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        # All of them, then what they say: where one cannot be read, a statement in between would keep the file locked
        # against its rescue.
        rows = connection.execute("SELECT name, seq, lost FROM exporters").fetchall()
        self._marks = {name: Mark(seq, _lost(lost)) for name, seq, lost in rows}
        self._lock = threading.Lock()  # guards these three
        self._dirty: set[str] = set()
        self._on_the_way: set[str] = set()

    def __contains__(self, exporter: str) -> bool:
        return exporter in self._marks

    def get(self, exporter: str) -> Mark:
        """Return how far `exporter` is."""
        return self._marks.get(exporter, Mark())

    def set(self, exporter: str, mark: Mark) -> None:
        """Note how far `exporter` is; durable with the next commit."""
        with self._lock:
            self._marks[exporter] = mark
            self._dirty.add(exporter)

    @property
    def are_dirty(self) -> bool:
        """Whether the next commit has a mark to store."""
        return bool(self._dirty)

    @property
    def are_unsaved(self) -> bool:
        """Whether a mark is not on the disk yet; any thread may ask."""
        with self._lock:  # between the two looks a commit that fails would move all from the second to the first
            return bool(self._dirty or self._on_the_way)

    @contextmanager
    def taken(self) -> Iterator[Sequence[tuple[str, int, str]]]:
        """Give the rows of what is not on the disk; where storing them fails, the next commit takes them again."""
        with self._lock:
            # No longer dirty, and not on the disk yet: `are_unsaved` has to know of them all the same.
            taken = self._on_the_way = self._dirty
            self._dirty = set()
            rows = [(name, self._marks[name].seq, json.dumps(dict(self._marks[name].lost))) for name in taken]
        try:
            yield rows
        except BaseException:
            with self._lock:
                # Names only: what was set meanwhile is newer, and is what the next commit stores.
                self._dirty |= taken
            raise
        finally:
            self._on_the_way = set()


def _lost(text: str) -> dict[str, int]:
    try:
        return dict(json.loads(text))
    except (TypeError, ValueError) as error:
        raise sqlite3.DatabaseError(f"an exporter's losses cannot be read: {error}") from error
