"""Write `metrics.columns` beside a `metrics.jsonl`, while that is written or afterwards."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from otel_ml.wire.columns import ChunkBuilder, believed, beside, head
from otel_ml_exporters.file_identity import OpenFile
from otel_ml_exporters.json_text import json_value

__all__ = ["MetricColumns", "write_columns"]

_CHUNK_BYTES = 2**20
"""Of text in a chunk: a reader gets through at most so much that is in no chunk yet."""

_CATCH_UP_BYTES = 8 * 2**20
"""Of text that is read to go on where there are columns for less of it; a longer one is left to who reads the run."""

_BAD = (OSError, ValueError, TypeError, KeyError, AttributeError, OverflowError)


class MetricColumns:
    """The columns of a text that one exporter appends to.

    Nothing is raised: where they cannot be written, the text is read instead.

    Args:
        jsonl: the text, as whole lines.
        whole: whether it gets every step of its run.
    """

    def __init__(self, jsonl: Path, *, whole: bool) -> None:
        self._jsonl = jsonl
        self._file: _ColumnsFile | None = None
        self._chunk = ChunkBuilder()
        try:
            self._file = _ColumnsFile(beside(jsonl))
            self._chunk = ChunkBuilder(self._file.begin(jsonl, head(whole=whole)))
            # Reading more of it would hold up the exporter's start.
            if jsonl.stat().st_size - self._chunk.begin > _CATCH_UP_BYTES:
                self._give_up()
                return
            with jsonl.open("rb") as text:
                text.seek(self._chunk.begin)
                self._take(_rows(text))
        except _BAD:
            self._give_up()

    def add(self, rows: Iterable[tuple[dict[str, Any], bytes]]) -> None:
        """Take lines that were appended to the text, each with what it says."""
        if self._file is None:
            return
        try:
            self._take(rows)
        except _BAD:
            self._give_up()

    def close(self) -> None:
        """Write what is not written, and close the file; again is fine."""
        if self._file is None:
            return
        try:
            self._write()
        except _BAD:
            pass
        finally:
            self._give_up()

    def _take(self, rows: Iterable[tuple[dict[str, Any], bytes]]) -> None:
        for row, line in rows:
            self._chunk.add(row, line)
            if self._chunk.end - self._chunk.begin >= _CHUNK_BYTES:
                self._write()

    def _write(self) -> None:
        if self._file is None or self._chunk.end == self._chunk.begin:
            return
        # The time of the text as it is behind these lines: columns of a text that somebody has edited since are not
        # believed.
        self._file.write(self._chunk.written(self._jsonl.stat().st_mtime_ns))
        self._chunk = ChunkBuilder(self._chunk.end)

    def _give_up(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            with suppress(OSError):
                file.close()


def write_columns(jsonl: Path, *, whole: bool) -> None:
    """Write the columns of a text that nobody appends to anew.

    Raises:
        OSError: the folder cannot be written to.
        ValueError, TypeError, KeyError, AttributeError, OverflowError: a line is not one of the exporter `jsonl`.
    """
    path = beside(jsonl)
    fresh = path.with_name(f"{path.name}.new")
    fresh.unlink(missing_ok=True)
    # A run may come from anybody: what has this name by then is not written through.
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o664)
    try:
        with os.fdopen(handle, "wb") as file, jsonl.open("rb") as text:
            file.write(head(whole=whole))
            chunk = ChunkBuilder()
            for row, line in _rows(text):
                chunk.add(row, line)
                if chunk.end - chunk.begin >= _CHUNK_BYTES:
                    file.write(chunk.written(0))  # the time of the last chunk alone says whether the text was edited
                    chunk = ChunkBuilder(chunk.end)
            file.write(chunk.written(os.fstat(text.fileno()).st_mtime_ns))
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)


class _ColumnsFile(OpenFile):
    """The file, to append to."""

    def begin(self, jsonl: Path, first_line: bytes) -> int:
        """Open it, anew where it is of another kind; return how many bytes of the text it covers."""
        self._open()
        end = 0
        with self._path.open("rb") as file:
            # Columns of another version, or of fewer steps, are begun anew.
            behind = len(first_line) if file.read(len(first_line)) == first_line else 0
            for chunk in believed(jsonl, file) if behind else ():
                end, behind = chunk.end, chunk.behind
        self.cut(behind)
        if not behind:
            self.write(first_line)
        return end


def _rows(text: BinaryIO) -> Iterator[tuple[dict[str, Any], bytes]]:
    for line in text:
        if not line.endswith(b"\n"):
            return  # being written, or torn
        yield json_value(line), line
