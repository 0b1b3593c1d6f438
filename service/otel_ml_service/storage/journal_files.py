"""The files in which a journal's entries are: begun, appended to, and deleted once all that they hold is decided.

An open one is never changed but at its end; who finds one that somebody has deleted under it writes it again.
"""

from __future__ import annotations

import errno
import logging
import os
import re
import stat
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from otel_ml.wire.versions import require
from otel_ml_exporters.file_identity import has_name
from otel_ml_service.storage.database import private_folder, storage_errors
from otel_ml_service.storage.journal_file import JournalFile
from otel_ml_service.storage.journal_frames import (
    Content,
    Entry,
    Place,
    as_frame,
    as_head,
    drop_frame,
    head_of,
    read,
    seed_of,
)
from otel_ml_service.storage.salvage import quarantine
from otel_ml_service.versions import JOURNAL

__all__ = ["JournalFiles", "TakenUp", "identity_of_files", "ids_in_files", "refuse_newer_files"]

_log = logging.getLogger(__name__)

_NAME = re.compile(r"journal-(\d{1,18})\.log")

_FULL = 16 * 2**20
"""Bytes from which on a new file is begun: about so much one entry that is not decided keeps on the disk."""

_WORTH_IT = 4 * 2**20
"""Bytes from which on the file that is appended to is deleted where all that it holds is decided."""


@dataclass(frozen=True, slots=True)
class TakenUp:
    """What a predecessor left.

    Attributes:
        entries: that can be read and are not dropped, in the order of their ids.
        highest: id of all that were read.
        dropped: up to which id.
        damaged: where the files are kept in which something was damaged.
    """

    entries: Sequence[Entry]
    highest: int
    dropped: int
    damaged: Sequence[Path]


class JournalFiles:
    """The files of one journal; for one thread at a time.

    Args:
        folder: in which they are.
        identity: of the journal.

    Attributes:
        dropped: id up to which nothing is needed.
    """

    def __init__(self, folder: Path, identity: str) -> None:
        self._folder = folder
        self._identity = identity
        self._seed = seed_of(identity)
        self._head = as_head(identity)
        # In the order of their numbers; the one that is appended to is also `_current`.
        self._files: list[JournalFile] = []
        self._current: JournalFile | None = None
        self._number = 0
        self.dropped = self._noted = 0

    def take_up(self, dropped: int) -> TakenUp:
        """Open what a predecessor left; damaged files are set aside once what can be read of them is written again.

        Args:
            dropped: up to this id, as far as is known without the files.

        Raises:
            StorageError: a file cannot be opened, or there is no room for what is saved; every entry is where it was.
        """
        found: dict[int, Entry] = {}
        damaged: list[tuple[JournalFile, Content]] = []
        highest = 0
        for number, path in _paths(self._folder):
            self._number = number
            with storage_errors(path):
                file = JournalFile(path, os.open(path, os.O_RDONLY | os.O_NOFOLLOW))
                self._files.append(file)
                content = file.content(self._identity)
                file.size = os.fstat(file.handle).st_size
            file.last = max((entry.id for entry in content.entries), default=0)
            highest, dropped = max(highest, file.last), max(dropped, content.dropped)
            for entry in content.entries:
                # In two files: saved from a damaged one by a predecessor that was killed before it set that aside.
                found.setdefault(entry.id, entry)
            if content.damaged:
                damaged.append((file, content))
        self.dropped = self._noted = dropped
        self._write_again([entry for _, content in damaged for entry in content.entries])
        kept = [self._quarantine(file) for file, _ in damaged]
        entries = sorted((entry for entry in found.values() if entry.id > dropped), key=lambda entry: entry.id)
        return TakenUp(entries, highest, dropped, kept)

    def append(self, entries: Sequence[Entry]) -> Sequence[Place]:
        """Write entries, and return where each is; they are on the disk when this returns.

        Raises:
            StorageError: they are not. Their ids are not to be given again: a file that cannot be cut may hold them.
        """
        self.write_lost_again()
        current = self._current
        if current is None or not current.is_usable or current.size >= _FULL:
            current = self._begun()
        parts = self._drop_note()
        begin = current.size + sum(map(len, parts))
        places = []
        for entry in entries:
            places.append(Place(current.path, begin))
            frame = self._frame(entry)
            begin += sum(map(len, frame))
            parts += frame
        with storage_errors(current.path):
            # Taken before the write: where the sync fails, all of the group is cut off.
            since = current.size
            current.write(parts)
            current.sync(since)
        current.last = max(current.last, entries[-1].id)
        self._noted = self.dropped
        return places

    def save(self, entries: Sequence[Entry]) -> None:
        """Write entries into a file of their own.

        Raises:
            StorageError: they are not there.
        """
        file = self._begun()
        try:
            with storage_errors(file.path):
                since = file.size
                for entry in entries:
                    file.write(self._frame(entry))
                file.sync(since)
        except BaseException:
            self._delete(file)
            raise
        file.last = max(entry.id for entry in entries)

    def drop(self, up_to: int) -> None:
        """Forget entries up to this id; a file of which all are dropped is deleted."""
        self.dropped = max(self.dropped, up_to)
        for file in list(self._files):
            # The current one stays while it is small: to make another one costs a sync of the folder.
            if file.last <= self.dropped and (file is not self._current or file.size >= _WORTH_IT):
                self._delete(file)

    def note_dropped(self) -> None:
        """Write down what is dropped, for a successor. Without a sync: where that is lost, more is read again."""
        if self._current is not None and self._current.is_usable and self._noted < self.dropped:
            with suppress(OSError):  # it goes with the next entries
                self._current.write(self._drop_note())
                self._noted = self.dropped

    def write_lost_again(self) -> None:
        """Write into a new file what is in files that somebody has deleted, moved, replaced or cut.

        Raises:
            StorageError: there is no room; it is tried again with the next entries.
        """
        # By its descriptor what is in it can still be read, and by nobody else.
        lost = [file for file in self._files if not has_name(file.handle, file.path, file.size)]
        if not lost:
            return
        if self._current in lost:
            self._current = None
        entries: list[Entry] = []
        for file in lost:
            with storage_errors(file.path):
                entries += file.content(self._identity).entries
        self._write_again(entries)
        for file in lost:
            self._forget(file)

    def delete_dropped(self) -> None:
        """Delete all files of which nothing is needed, the one that is appended to, too."""
        for file in list(self._files):
            if file.last <= self.dropped:
                self._delete(file)

    def close(self) -> None:
        """Close all files; again is fine."""
        for file in self._files:
            file.close()
        self._files.clear()
        self._current = None

    def _write_again(self, entries: Iterable[Entry]) -> None:
        kept = [entry for entry in entries if entry.id > self.dropped]
        if kept:
            self.save(kept)

    def _begun(self) -> JournalFile:
        """Return a new file, which others find by its name from now on, and which is appended to.

        Raises:
            StorageError: there is none.
        """
        file = self._made()
        try:
            with storage_errors(file.path):
                file.write([self._head])
                _sync_folder(self._folder)
        except BaseException:
            file.close()
            with suppress(OSError):
                file.path.unlink()
            raise
        self._files.append(file)
        self._current = file
        self._noted = 0  # the file that says what is dropped may be deleted before this one: it says it, too
        return file

    def _made(self) -> JournalFile:
        private_folder(self._folder)
        while True:
            self._number += 1
            path = self._folder / f"journal-{self._number}.log"
            flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
            with storage_errors(path):
                try:
                    return JournalFile(path, os.open(path, flags, 0o600))
                except FileExistsError:
                    continue  # whatever it is, it is not ours

    def _frame(self, entry: Entry) -> list[bytes]:
        return [as_frame(entry.id, entry.signal, entry.body, self._seed), entry.body]

    def _drop_note(self) -> list[bytes]:
        return [drop_frame(self.dropped, self._seed)] if self._noted < self.dropped else []

    def _delete(self, file: JournalFile) -> None:
        try:
            # Whatever else has the name by now is somebody else's.
            if has_name(file.handle, file.path):
                file.path.unlink()
        except OSError:  # it is tried again with the next that is decided
            _log.debug("%s stays.", file.path, exc_info=True)
            return
        self._forget(file)

    def _quarantine(self, file: JournalFile) -> Path:
        with storage_errors(file.path):
            kept = quarantine(file.path)
        self._forget(file)
        return kept

    def _forget(self, file: JournalFile) -> None:
        self._files.remove(file)
        file.close()
        if file is self._current:
            self._current = None


def identity_of_files(folder: Path) -> str:
    """Return the identity that the newest file of a journal says; "" where none does."""
    heads = (head_of(_beginning(path)) for _, path in reversed(_paths(folder)))
    return next((head.identity for head in heads if head is not None), "")


def refuse_newer_files(folder: Path) -> None:
    """Do nothing where this code reads the form of all files of a journal.

    Raises:
        VersionError: newer code has written one.
    """
    for _, path in _paths(folder):
        head = head_of(_beginning(path))
        if head is not None:
            require(path, head.version, JOURNAL)


def ids_in_files(folder: Path, identity: str, after: int) -> set[int]:
    """Return the ids above `after` of what is not dropped in the files of a journal that nobody has open.

    Raises:
        StorageError: one of them cannot be read.
    """
    with storage_errors(folder):
        contents = [read(path.read_bytes(), identity) for _, path in _paths(folder)]
    after = max([after, *(content.dropped for content in contents)])
    return {entry.id for content in contents for entry in content.entries if entry.id > after}


def _paths(folder: Path) -> list[tuple[int, Path]]:
    """Return the files of a journal, by number; what else has such a name is nobody's entry."""
    with storage_errors(folder):
        try:
            paths = list(folder.iterdir())
        except (FileNotFoundError, NotADirectoryError):
            return []
    found = [(int(match[1]), path) for path in paths if (match := _NAME.fullmatch(path.name))]
    return sorted((number, path) for number, path in found if stat.S_ISREG(path.lstat().st_mode))


def _beginning(path: Path) -> bytes:
    with storage_errors(path), path.open("rb") as file:
        return file.read(256)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno != errno.EINVAL:  # a file system that has no such thing
            raise
    finally:
        os.close(handle)
