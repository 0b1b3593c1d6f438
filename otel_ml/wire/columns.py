"""`metrics.columns`: the steps of `metrics.jsonl` once more, series by series, so that one is read without the others.

It says nothing that `metrics.jsonl` does not say. A chunk holds some thousand lines of it: a line of JSON with a
checksum, then the numbers as they are in memory. It is believed as far as the checksums say that these still are those
lines; the others are read from the text. So it may be missing, torn, older or newer than its text.
"""

from __future__ import annotations

import json
import os
import sys
from array import array
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple
from zlib import crc32

__all__ = ["Chunk", "ChunkBuilder", "Column", "SeriesKey", "believed", "beside", "head"]

_VERSION: Final = 1
_BLOCK: Final = 2**20


class SeriesKey(NamedTuple):
    """A published name on an axis."""

    axis: str
    name: str


class Column(NamedTuple):
    """The values of a series in a chunk, in the order of its lines; all five have one length."""

    steps: array[int]
    values: array[float]
    seqs: array[int]
    attempts: array[int]
    corrected: array[int]


def beside(jsonl: Path) -> Path:
    """Return where the columns of a `metrics.jsonl` are."""
    return jsonl.with_name("metrics.columns")


def head(*, whole: bool) -> bytes:
    """Return the first line of the file.

    Args:
        whole: whether the text holds every step of its run; an exporter with `every: 10` writes a tenth.
    """
    return _line({"version": _VERSION, "whole": whole, "byteorder": sys.byteorder})


@dataclass
class ChunkBuilder:
    """Gathers lines of the text, and writes them as one chunk.

    Attributes:
        begin, end: bytes of the text that the lines are.
        rows: lines of steps among them.
    """

    begin: int = 0
    _crc: int = 0
    end: int = -1
    rows: int = 0
    _last_seq: int = 0
    _seqs: array[int] = field(default_factory=lambda: array("q"))
    _steps: array[int] = field(default_factory=lambda: array("q"))
    _attempts: array[int] = field(default_factory=lambda: array("q"))
    _corrected: array[int] = field(default_factory=lambda: array("b"))
    _times: list[float] = field(default_factory=list)
    _shapes: dict[tuple[str, ...], tuple[array[int], list[tuple[float, ...]]]] = field(default_factory=dict)
    _others: list[tuple[int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.end = self.begin

    def add(self, row: Mapping[str, Any], line: bytes) -> None:
        """Take the next line, and what it says.

        Raises:
            ValueError, TypeError, KeyError, OverflowError: it is not one that the exporter `jsonl` writes.
        """
        self._last_seq = row["seq"]
        if "type" in row:
            self._others.append((self.end, len(line)))
        else:
            # Where this raises in its middle, the columns have different lengths: who calls gives the chunk up.
            self._add_step(row)
        self._crc = crc32(line, self._crc)
        self.end += len(line)

    def _add_step(self, row: Mapping[str, Any]) -> None:
        values = row["values"]
        # Lines with the same names in the same order share a shape: one tuple a line, and no append for each value.
        key = row["axis"], *values
        rows = self._shapes.get(key)
        if rows is None:
            rows = self._shapes[key] = array("I"), []
        rows[0].append(self.rows)
        rows[1].append(tuple(values.values()))
        self._seqs.append(row["seq"])
        self._steps.append(row["step"])
        self._attempts.append(row["attempt"])
        self._corrected.append(bool(row.get("amendment")))
        self._times.append(row["time"])
        self.rows += 1

    def _series(self) -> Mapping[SeriesKey, tuple[array[int], array[float]]]:
        """Return the values of each series, and of which lines they are, in the order of lines."""
        series: dict[SeriesKey, tuple[array[int], array[float]]] = {}
        for (axis, *names), (lines, rows) in self._shapes.items():
            for name, column in zip(names, zip(*rows, strict=True), strict=True):
                key, values = SeriesKey(axis, name), array("d", column)
                before = series.get(key)
                # A series may be in lines of several shapes, as where another metric is logged every tenth step.
                series[key] = (lines, values) if before is None else _in_order(before[0] + lines, before[1] + values)
        return series

    def written(self, mtime_ns: int) -> bytes:
        """Return the chunk.

        Args:
            mtime_ns: when the text was written to last; as long as it says so, nobody has edited it.
        """
        rows = b"".join(part.tobytes() for part in (self._seqs, self._steps, self._attempts, self._corrected))
        series = self._series()
        columns = {
            # A series that every line has need not say which lines these are.
            key: (b"" if len(values) == self.rows else index.tobytes()) + values.tobytes()
            for key, (index, values) in series.items()
        }
        about = {
            "begin": self.begin,
            "end": self.end,
            "crc": self._crc,
            "mtime_ns": mtime_ns,
            "last_seq": self._last_seq,
            "rows": self.rows,
            "rows_crc": crc32(rows),
            "times": [min(self._times), max(self._times)] if self._times else [],
            "others": self._others,
            "series": [[*key, len(series[key][1]), crc32(data)] for key, data in columns.items()],
        }
        return b"".join((_line(about), rows, *columns.values()))


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some thousand lines of the text.

    Attributes:
        begin, end: bytes of the text that it stands for.
        crc: of these.
        last_seq: of the last of them.
        rows: lines of steps among them.
        times: when the first and the last of these were written; empty without any.
        others: where the other lines are: first byte, length.
        series: what it has a column of.
        behind: where the next chunk begins in the file of columns.
    """

    begin: int
    end: int
    crc: int
    last_seq: int
    rows: int
    times: tuple[float, ...]
    others: tuple[tuple[int, int], ...]
    series: Mapping[SeriesKey, tuple[int, int, int]] = field(repr=False)
    behind: int
    _rows: tuple[array[int], array[int], array[int], array[int]] = field(repr=False)
    _file: BinaryIO = field(repr=False)

    def column(self, key: SeriesKey) -> Column:
        """Read the values of a series.

        Raises:
            ValueError: they are not what was written.
            OSError: the file cannot be read.
        """
        at, count, crc = self.series[key]
        if not 0 < count <= self.rows:
            raise ValueError(f"{key.name!r} has {count} values in {self.rows} lines")
        is_full = count == self.rows
        data = _pread(self._file, at, _column_size(count, self.rows))
        if crc32(data) != crc:
            raise ValueError(f"the values of {key.name!r} are not what was written")
        # The values are the last 8 bytes each, whether or not it is said before them which lines they are of.
        values = _array("d", data[-8 * count :])
        seqs, steps, attempts, corrected = self._rows
        if is_full:
            return Column(steps, values, seqs, attempts, corrected)
        index = _array("I", data[: -8 * count])
        # The checksum tells a damaged file, not one whose writer was wrong.
        if max(index) >= self.rows:
            raise ValueError(f"the values of {key.name!r} are of lines that are not there")
        picked = [array(rows.typecode, map(rows.__getitem__, index)) for rows in (steps, seqs, attempts, corrected)]
        return Column(picked[0], values, *picked[1:])


def believed(jsonl: Path, columns: BinaryIO, *, only_whole: bool = False) -> Iterator[Chunk]:
    """Yield the chunks that still are what the text says, from its beginning on.

    Args:
        jsonl: the text.
        columns: the file beside it, open; it stays open as long as chunks are used.
        only_whole: nothing where the text may lack steps of its run.
    """
    try:
        with jsonl.open("rb") as text:
            status = os.fstat(text.fileno())
            found = list(_intact(columns, only_whole=only_whole))
            # The text as it was written is not read once more. One that was copied, or has grown, is.
            is_untouched = bool(found) and found[-1][1:] == (status.st_mtime_ns, status.st_size)
            for chunk, _, _ in found:
                if not is_untouched and _crc_of(text, chunk.begin, chunk.end) != chunk.crc:
                    return
                yield chunk
    except OSError:
        return


def _intact(file: BinaryIO, *, only_whole: bool) -> Iterator[tuple[Chunk, int, int]]:
    """Yield chunks up to one that is not what was written, and the time and size of the text behind each."""
    with suppress(ValueError, TypeError, KeyError):
        for about, chunk in _chunks(file, only_whole=only_whole):
            yield chunk, about["mtime_ns"], about["end"]


def _chunks(file: BinaryIO, *, only_whole: bool) -> Iterator[tuple[Mapping[str, Any], Chunk]]:
    file.seek(0)
    first = _parsed(file.readline(_BLOCK))
    is_known = first["version"] == _VERSION and first["byteorder"] == sys.byteorder
    if not is_known or (only_whole and not first["whole"]):
        return
    end = 0
    while line := file.readline():
        about = _parsed(line)
        # Chunks follow one another in the text without a gap.
        if about["begin"] != end:
            return
        chunk = _chunk(file, about, file.tell())
        yield about, chunk
        end = chunk.end
        file.seek(chunk.behind)


def _chunk(file: BinaryIO, about: Mapping[str, Any], at: int) -> Chunk:
    count = about["rows"]
    # Of each line three numbers of 8 bytes, and one of 1.
    data = _pread(file, at, 25 * count)
    if crc32(data) != about["rows_crc"]:
        raise ValueError("the rows are not what was written")
    seqs, steps, attempts = (_array("q", data[8 * count * part : 8 * count * (part + 1)]) for part in range(3))
    at += len(data)
    series = {}
    for axis, name, length, crc in about["series"]:
        series[SeriesKey(axis, name)] = at, length, crc
        at += _column_size(length, count)
    if at > os.fstat(file.fileno()).st_size:
        raise ValueError("the end is torn")
    others = tuple((begin, length) for begin, length in about["others"])
    rows = seqs, steps, attempts, _array("b", data[24 * count :])
    return Chunk(
        begin=about["begin"],
        end=about["end"],
        crc=about["crc"],
        last_seq=about["last_seq"],
        rows=count,
        times=tuple(about["times"]),
        others=others,
        series=series,
        behind=at,
        _rows=rows,
        _file=file,
    )


def _in_order(index: array[int], values: array[float]) -> tuple[array[int], array[float]]:
    """Return the values in the order of their lines: lines of several shapes may have one series."""
    order = sorted(range(len(index)), key=index.__getitem__)
    return array("I", map(index.__getitem__, order)), array("d", map(values.__getitem__, order))


def _column_size(count: int, rows: int) -> int:
    # 8 bytes a value; 4 more each say of which line it is, where not every line has one.
    return count * (8 if count == rows else 12)


def _array(code: str, data: bytes) -> array[Any]:
    made: array[Any] = array(code)
    made.frombytes(data)
    return made


def _line(content: Mapping[str, Any]) -> bytes:
    text = json.dumps(content, separators=(",", ":")).encode()
    return b"%08x %b\n" % (crc32(text), text)


def _parsed(line: bytes) -> Mapping[str, Any]:
    crc, _, text = line.rstrip(b"\n").partition(b" ")
    if not line.endswith(b"\n") or int(crc, 16) != crc32(text):
        raise ValueError("a line is torn")
    content: Mapping[str, Any] = json.loads(text)
    return content


def _pread(file: BinaryIO, at: int, size: int) -> bytes:
    if size < 0 or at + size > os.fstat(file.fileno()).st_size:  # before memory is asked for: a file may say anything
        raise ValueError("the end is torn")
    return os.pread(file.fileno(), size, at)


def _crc_of(file: BinaryIO, begin: int, end: int) -> int:
    crc = 0
    for at in range(begin, end, _BLOCK):
        crc = crc32(os.pread(file.fileno(), min(_BLOCK, end - at), at), crc)
    return crc
