"""W&B's transaction log (`run-<id>.wandb`): read it while it grows, and repair its end after a crash.

The file is a LevelDB log whose records are each a `wandb_internal_pb2.Record`. The package `wandb` has no reader in
Python.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from otel_ml_exporters import leveldb_log
from otel_ml_exporters.file_identity import identity

__all__ = ["LogTail", "last_row", "records", "repair"]

_FILE_HEADER = b":W&B\xe1\xbe\x00"


def records(path: Path, start: int = 0) -> Iterator[tuple[int, bytes]]:
    """Yield (end offset, content) of every whole record from `start` on; stop before a torn or damaged one."""
    with path.open("rb") as file:
        if file.read(len(_FILE_HEADER)) != _FILE_HEADER:
            return
        # Blocks are counted from the beginning of the file: an offset is one in the file, header and all.
        yield from leveldb_log.records(file, max(start, len(_FILE_HEADER)))


def repair(path: Path) -> bool:
    """Cut `path` after its last whole record; return whether anything is left to synchronize.

    `wandb sync` stops at a torn record and does not continue with the run's later files.
    """
    end = 0
    for end, _ in records(path):  # noqa: B007 (the last end is what is wanted)
        pass
    if end and end < path.stat().st_size:
        with path.open("r+b") as file:
            file.truncate(end)
    return end > 0


def last_row(path: Path) -> int:
    """Return the `_step` of the last history row in `path`, or 0."""
    return LogTail(path).advance()


class LogTail:
    """Follows a log that W&B's service is writing.

    Attributes:
        path: of the log.
        ended: how the run ended is on disk, too.
    """

    def __init__(self, path: Path) -> None:
        self.ended = False
        self.path = path
        self._offset = 0
        self._last_row = 0
        self._file: tuple[int, int] | None = None

    @property
    def is_intact(self) -> bool:
        """Whether the file that was there when this was first asked, or read, still is."""
        self._file = self._file or identity(self.path)  # `wandb-core` makes it a moment after the start
        return identity(self.path) == self._file

    def advance(self) -> int:
        """Read what was written since the last call; return the `_step` of the newest row on disk, or 0."""
        self._file = self._file or identity(self.path)
        for end, content in records(self.path, self._offset) if self.path.exists() else ():
            self._offset = end
            record = _decode(content)
            kind = record.WhichOneof("record_type")
            # How the run ended is a record among the others.
            self.ended |= kind == "exit"
            if kind == "history":
                self._last_row = max(self._last_row, record.history.step.num)
        return self._last_row


def _decode(content: bytes) -> Any:
    from wandb.proto import wandb_internal_pb2

    return wandb_internal_pb2.Record.FromString(content)
