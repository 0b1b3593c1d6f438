"""Read `metrics.jsonl`, also while it grows."""

from __future__ import annotations

import errno
import json
import os
import stat
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from otel_ml.exceptions import OtelMLError
from otel_ml_exporters.records import Artifact, Record, StepRecord
from otel_ml_service.storage.record_codec import decode

__all__ = [
    "UNDECODABLE",
    "Follower",
    "UnreadableLineError",
    "is_another",
    "opened_file",
    "record_of",
    "with_own_file",
]

UNDECODABLE = (ValueError, TypeError, KeyError, AttributeError, RecursionError, OSError)
"""What a row raises that no otel_ml service wrote so."""


class UnreadableLineError(OtelMLError):
    """A line of `metrics.jsonl` is not one the exporter `jsonl` writes."""

    slug = "run-unreadable"


class Follower:
    """Hands out each record of a file once, in the order of the file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: os.stat_result | None = None
        self._offset = 0
        self._lines = 0

    def new_records(self) -> list[Record]:
        """Return what was written since the last call; a line that is not complete yet comes the next time.

        Raises:
            UnreadableLineError: naming the file and the line.
        """
        try:
            content = self._new_bytes()
        except FileNotFoundError:
            return []
        except OSError as error:
            raise UnreadableLineError(f"{str(self._path)!r} cannot be read: {error.strerror}.") from error
        whole = content[: content.rfind(b"\n") + 1]
        self._offset += len(whole)
        return [self._record(line) for line in whole.splitlines()]

    @property
    def is_of_another_file(self) -> bool:
        """Whether the file was replaced or cut since it was read: a new follower has what is there now."""
        return is_another(self._path, self._file, self._offset)

    def _new_bytes(self) -> bytes:
        with opened_file(self._path) as file:
            self._file = os.fstat(file.fileno())
            file.seek(self._offset)
            return file.read()

    def _record(self, line: bytes) -> Record:
        self._lines += 1
        try:
            return record_of(line, self._path.parent)
        except UNDECODABLE as error:
            raise UnreadableLineError(
                f"{str(self._path)!r}, line {self._lines}: {line[:60]!r} is not a row of the exporter jsonl ({error}). "
                "Expected one JSON object a line with seq, axis, step, values. Remove the line to read the others."
            ) from error


def is_another(path: Path, known: os.stat_result | None, read: int) -> bool:
    """Whether a path has another file by now, or less than was read of it; one that is away may come back as it was.

    Args:
        path: of the file.
        known: the file that was read; None where none was.
        read: bytes of it.
    """
    try:
        found = path.stat()
    except OSError:
        return False
    return known is not None and (not os.path.samestat(found, known) or found.st_size < read)


def opened_file(path: Path) -> BinaryIO:
    """Open a file to read it; a pipe of that name would have us wait for somebody who writes.

    Raises:
        OSError: it cannot be opened, or is not a file.
    """
    file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb")
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "it is not a file", str(path))
    return file


def record_of(line: bytes, folder: Path) -> Record:
    """Return the record that a line stands for; images and sounds are read from `folder`.

    Examples:
        >>> record_of(b'{"seq":1,"type":"summary","time":0.5,"values":{"accuracy":0.9}}', Path())
        Summary(seq=1, time=0.5, values={'accuracy': 0.9})
    """
    row = json.loads(line)
    kind = row.pop("type", None)
    if kind is None:
        return _checked(StepRecord(**row))
    if kind == "artifact":
        # `type` says what kind of record it is, so an artifact's own type has another name in the text.
        row["type"] = row.pop("artifact_type")
    media = _inside(folder, row.pop("path")).read_bytes() if kind in {"image", "audio"} else None
    return with_own_file(decode((kind, json.dumps(row), media)), folder)


def _checked(record: StepRecord) -> StepRecord:
    names = (record.role, record.axis, *record.values)
    numbers = (record.seq, record.step, record.attempt, record.time, *record.values.values())
    if not all(isinstance(name, str) for name in names) or not all(isinstance(n, (int, float)) for n in numbers):
        raise TypeError("a name is not a text, or a number not one")
    return record


def with_own_file(record: Record, folder: Path) -> Record:
    """Return `record`; an artifact's file is taken from the run's folder only: a run may come from anybody."""
    if not isinstance(record, Artifact) or record.local is None or _is_inside(folder, record.local):
        return record
    return replace(record, local=None)


def _inside(folder: Path, name: str) -> Path:
    if not _is_inside(folder, folder / name):
        raise ValueError(f"{name!r} is not in the run's folder")
    return folder / name


def _is_inside(folder: Path, path: Path) -> bool:
    return path.resolve().is_relative_to(folder.resolve())
