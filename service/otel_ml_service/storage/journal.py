"""What came in and is not yet decided: appended and synced before a request is acknowledged.

`journal.db` says whose it is, and is locked by who has it open; the requests are in files beside it
(`journal_frames.py`). Own thread, group commit: requests that arrive during one commit share the next. With a sync of
a few milliseconds nobody waits for a timer (docs/protocol.md §6.1).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from otel_ml_service.storage.database import StorageError
from otel_ml_service.storage.journal_database import JournalDatabase
from otel_ml_service.storage.journal_files import JournalFiles
from otel_ml_service.storage.journal_frames import Entry, Place, body_at
from otel_ml_service.storage.salvage import newest_damaged_copy

__all__ = ["Committed", "Done", "Entry", "Journal"]

T = TypeVar("T")

Done = Callable[[int | StorageError], None]
"""Told the id of an entry that is on the disk, or why it is not there."""

_GROUP = 512
"""Most entries in one commit; bounds how long the first one waits."""

_RESERVED = 2**20
"""Ids that the database is told of at a time: who is killed has given none above them."""


@dataclass(frozen=True, slots=True)
class Committed(Generic[T]):
    """A request that is on the disk: under which id, what it means, and where its bytes are."""

    id: int
    payload: T
    place: Place


@dataclass(slots=True)
class _Pending(Generic[T]):
    signal: str
    body: bytes
    payload: T
    done: Done


class Journal(Generic[T]):
    """Appends requests durably and hands their decoded payloads on, in the order of their ids.

    Args:
        path: `journal.db`.
        committed: called on the journal's thread after each commit, with what it made durable, in order.
        timeout_s: seconds to wait for a predecessor that is just stopping.

    Raises:
        VersionError: newer code has written it.
        StorageError: it cannot be used.

    Attributes:
        identity: by which runs know whose ids they have consumed.
        damage: what to tell a person about a file that could not be read as a whole, or "".
    """

    def __init__(
        self, path: Path, committed: Callable[[Sequence[Committed[T]]], None], *, timeout_s: float = 0.0
    ) -> None:
        self._committed = committed
        self.damage = ""
        self._leftover: Sequence[Entry] = ()
        self._database = JournalDatabase(path, timeout_s)
        self.identity = self._database.identity
        self._files = JournalFiles(path.parent, self.identity)
        try:
            self._take_up(path)
        except BaseException:
            self._files.close()
            self._database.close()
            raise
        # Guards _pending, _drop_up_to and _closing; the files belong to the thread once that runs.
        self._changed = threading.Condition()
        self._pending: list[_Pending[T]] = []
        self._drop_up_to = 0
        self._closing = self._is_closed = False
        self._thread = threading.Thread(target=self._work, name="otel-ml-journal", daemon=True)

    def leftover(self) -> Sequence[Entry]:
        """Return what a predecessor acknowledged and did not finish; call before `start`."""
        leftover, self._leftover = self._leftover, ()
        return leftover

    def start(self) -> None:
        """Start committing."""
        self._thread.start()

    def append(self, signal: str, body: bytes, payload: T, done: Done) -> None:
        """Store a request with the next commit; `done` is called once, on the journal's thread or before this returns.

        It must not block: with a future for each request, what waits for it took a sixth of the receiver's time.
        """
        with self._changed:
            is_open = not self._closing
            if is_open:
                # The decoded payload travels with the bytes, so the engine decodes nothing again; after a restart it is
                # decoded from the bytes on the disk.
                self._pending.append(_Pending(signal, body, payload, done))
                self._changed.notify()
        if not is_open:
            done(StorageError("The service is stopping. Send again later.", slug="not-stored"))

    def body(self, number: int, place: Place) -> bytes:
        """Read the bytes of a request again, on any thread.

        Raises:
            OSError: they are not where they were written.
        """
        return body_at(place, number, self.identity)

    def drop(self, up_to: int) -> None:
        """Forget entries up to this id: every run has committed them. Done by the journal's thread, when it is free."""
        with self._changed:
            self._drop_up_to = max(self._drop_up_to, up_to)
            self._changed.notify()

    def close(self) -> None:
        """Commit what is pending, and close; safe twice."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._thread.ident is not None:
            self._thread.join()
        if self._is_closed:
            return
        self._is_closed = True
        with suppress(StorageError):  # no room: what has its name is there, and the ids that are reserved are not given
            self._database.keep_name()
            self._files.write_lost_again()
            self._files.delete_dropped()
            self._database.note(self._last, self._files.dropped)
        self._files.close()
        self._database.close()

    def _take_up(self, path: Path) -> None:
        found = self._files.take_up(self._database.dropped)
        known = {entry.id for entry in found.entries}
        former = [one for one in self._database.former if one.id > found.dropped and one.id not in known]
        if former:
            # Before `settle`, which drops the table: killed in between, the next start finds both, and takes each once.
            self._files.save(former)
        highest = max([found.highest, found.dropped, *(entry.id for entry in former)])
        # Without what the database knew: there may have been more in files that are gone.
        beyond = self._database.last if self._database.last is not None else highest and highest + _RESERVED
        self._last = self._reserved = max(highest, beyond)
        self._database.settle(self._last, found.dropped)
        self._files.drop(found.dropped)
        self._leftover = sorted([*found.entries, *former], key=lambda entry: entry.id)
        damaged = [*([newest_damaged_copy(path)] if self._database.was_damaged else []), *found.damaged]
        if damaged:
            self.damage = (
                f"The journal was damaged: {len(self._leftover)} requests could be read and are taken up, the others "
                f"are lost. The damaged file is kept: {', '.join(map(str, damaged))}"
            )

    def _work(self) -> None:
        while True:
            with self._changed:
                while not (self._pending or self._closing or self._drop_up_to > self._files.dropped):
                    self._changed.wait()
                # Group commit: whatever came in during the last sync shares the next one. One sync of 5 ms then serves
                # hundreds of requests, and a lone request waits for nobody.
                group, self._pending = self._pending[:_GROUP], self._pending[_GROUP:]
                drop, closing = self._drop_up_to, self._closing
            self._files.drop(drop)  # first: it may be what makes room
            if group:
                self._commit(group)
            elif closing:
                return
            else:
                # Nothing arrives that the note could go with: a successor would read again what is decided.
                self._files.note_dropped()

    def _commit(self, group: Sequence[_Pending[T]]) -> None:
        try:
            written = self._write(group)
        except StorageError as error:
            # Nothing was acknowledged, so nothing is lost: the senders keep what they sent and send it again.
            for pending in group:
                pending.done(error)
            return
        # First the engine gets them, then the senders hear of it: nothing that is acknowledged is unknown to the
        # engine.
        self._committed(written)
        for one, pending in zip(written, group, strict=True):
            pending.done(one.id)

    def _write(self, group: Sequence[_Pending[T]]) -> Sequence[Committed[T]]:
        # Somebody may have deleted what is open: what is acknowledged must not end with this process.
        self._database.keep_name()
        # Ids of what could not be written are not given again: a file that could not be cut may hold it.
        ids = range(self._last + 1, self._last + 1 + len(group))
        self._last += len(group)
        # Before the ids are used: who is killed after this has promised nobody a higher one.
        if self._last > self._reserved:
            reserved = self._last + _RESERVED
            self._database.note(reserved, self._files.dropped)
            self._reserved = reserved
        numbered = list(zip(ids, group, strict=True))
        places = self._files.append([Entry(number, one.signal, one.body) for number, one in numbered])
        return [Committed(number, one.payload, place) for (number, one), place in zip(numbered, places, strict=True)]
