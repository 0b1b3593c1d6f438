"""`metrics.columns` says what its text says: every value of every line, and nothing of what has changed since."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from otel_ml.wire.columns import Chunk, ChunkBuilder, SeriesKey, believed, beside, head

AXES, NAMES = st.sampled_from(["step", "eval"]), st.sampled_from(["loss", "größe", "lr"])


class Line(NamedTuple):
    """A line of the text, and its bytes."""

    row: dict[str, Any]
    text: bytes


@st.composite
def texts(draw: st.DrawFn) -> list[list[Line]]:
    """Draw lines as the exporter writes them, in the chunks that they are gathered in."""
    chunks: list[list[Line]] = []
    seq = 0
    for size in draw(st.lists(st.integers(1, 6), max_size=3)):
        chunks.append([])
        for _ in range(size):
            seq += draw(st.integers(1, 3))
            row = draw(others() if draw(st.integers(0, 3)) == 0 else steps())
            chunks[-1].append(Line({"seq": seq, **row}, json.dumps({"seq": seq, **row}).encode() + b"\n"))
    return chunks


@st.composite
def steps(draw: st.DrawFn) -> dict[str, Any]:
    amends = {"amendment": True} if draw(st.booleans()) else {}
    return {
        "axis": draw(AXES), "step": draw(st.integers(-(2**63), 2**63 - 1)), "attempt": draw(st.integers(0, 3)),
        "time": draw(st.integers(0, 9)) / 4, "values": draw(st.dictionaries(NAMES, st.integers(0, 9), max_size=3)),
        **amends,
    }  # fmt: skip


def others() -> st.SearchStrategy[dict[str, Any]]:
    return st.just({"type": "params", "params": {"lr": 0.1}})


@contextmanager
def written(chunks: Sequence[Sequence[Line]], *, whole: bool = True) -> Iterator[Path]:
    """Write text and columns; between two chunks the text is not touched, as its time says."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        jsonl = Path(folder) / "metrics.jsonl"
        jsonl.write_bytes(b"".join(line.text for lines in chunks for line in lines))
        columns, begin = [head(whole=whole)], 0
        for lines in chunks:
            builder = ChunkBuilder(begin)
            for line in lines:
                builder.add(line.row, line.text)
            columns.append(builder.written(jsonl.stat().st_mtime_ns))
            begin = builder.end
        beside(jsonl).write_bytes(b"".join(columns))
        yield jsonl


def read(jsonl: Path, *, only_whole: bool = False) -> list[dict[str, Any]]:
    """Return what each chunk that is believed says; the values of a series are None where they are refused."""
    with beside(jsonl).open("rb") as file:
        return [said(chunk) for chunk in believed(jsonl, file, only_whole=only_whole)]


def said(chunk: Chunk) -> dict[str, Any]:
    columns: dict[SeriesKey, object] = {}
    for key in chunk.series:
        try:
            columns[key] = [list(column) for column in chunk.column(key)]
        except ValueError:
            columns[key] = None
    found = {name: getattr(chunk, name) for name in ("begin", "end", "last_seq", "rows", "times", "others")}
    return {**found, "columns": columns}


def expected(chunks: Sequence[Sequence[Line]]) -> list[dict[str, Any]]:
    """Return the same, from the lines alone."""
    found, end = [], 0
    for lines in chunks:
        begin, apart, columns = end, [], {}
        rows = [line.row for line in lines if "type" not in line.row]
        for line in lines:
            if "type" in line.row:
                apart.append((end, len(line.text)))
            end += len(line.text)
        for key in {SeriesKey(row["axis"], name) for row in rows for name in row["values"]}:
            those = [row for row in rows if row["axis"] == key.axis and key.name in row["values"]]
            columns[key] = [
                [row["step"] for row in those], [row["values"][key.name] for row in those],
                [row["seq"] for row in those], [row["attempt"] for row in those],
                [int(row.get("amendment", False)) for row in those],
            ]  # fmt: skip
        times = [row["time"] for row in rows]
        found.append({
            "begin": begin, "end": end, "last_seq": lines[-1].row["seq"], "rows": len(rows), "others": tuple(apart),
            "times": (min(times), max(times)) if times else (), "columns": columns,
        })  # fmt: skip
    return found


@given(texts())
@settings(max_examples=40)
def test_columns_say_what_every_line_says(chunks: list[list[Line]]) -> None:
    with written(chunks) as jsonl:
        assert read(jsonl) == read(jsonl, only_whole=True) == expected(chunks)


@given(texts(), st.binary(max_size=9))
@settings(max_examples=40)
def test_of_a_text_that_grows_and_is_copied_the_columns_say_what_they_said(
    chunks: list[list[Line]], more: bytes
) -> None:
    with written(chunks) as jsonl:
        jsonl.write_bytes(jsonl.read_bytes() + more)
        os.utime(jsonl, ns=(1, 1))

        assert read(jsonl) == expected(chunks)


@given(texts().filter(bool), st.floats(0, 1, exclude_max=True), st.none() | st.integers(0, 7))
@settings(max_examples=50)
def test_of_columns_that_are_cut_or_damaged_anywhere_nothing_wrong_is_read(
    chunks: list[list[Line]], share: float, bit: int | None
) -> None:
    with written(chunks) as jsonl:
        content = bytearray(beside(jsonl).read_bytes())
        at = int(share * len(content))
        if bit is None:
            del content[at:]
        else:
            content[at] ^= 1 << bit
        beside(jsonl).write_bytes(content)

        for found, right in zip(read(jsonl), expected(chunks), strict=False):
            columns, wanted = found.pop("columns"), right.pop("columns")
            assert found == right
            assert {key: value for key, value in columns.items() if value is not None}.items() <= wanted.items()
            assert list(columns.values()).count(None) <= 1


@given(texts().filter(bool), st.floats(0, 1, exclude_max=True))
@settings(max_examples=40)
def test_of_a_text_that_was_edited_the_columns_are_believed_up_to_there(chunks: list[list[Line]], share: float) -> None:
    with written(chunks) as jsonl:
        content = bytearray(jsonl.read_bytes())
        at = int(share * len(content))
        content[at] ^= 1
        jsonl.write_bytes(content)
        os.utime(jsonl, ns=(1, 1))

        assert read(jsonl) == [chunk for chunk in expected(chunks) if chunk["end"] <= at]


@given(texts().filter(bool))
@settings(max_examples=10)
def test_where_the_text_lacks_steps_of_its_run_only_who_wants_no_others_has_columns(chunks: list[list[Line]]) -> None:
    with written(chunks, whole=False) as jsonl:
        assert read(jsonl, only_whole=True) == []
        assert read(jsonl) == expected(chunks)


def test_a_bit_that_changed_anywhere_is_noticed() -> None:
    rows = [
        {"seq": seq, "axis": "step", "step": seq, "attempt": 0, "time": 1.0, "values": {"loss": seq}} for seq in (1, 2)
    ]
    chunks = [[Line(row, json.dumps(row).encode() + b"\n")] for row in rows]
    with written(chunks) as jsonl:
        whole, right = beside(jsonl).read_bytes(), expected(chunks)
        for at in range(len(whole)):
            beside(jsonl).write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])

            found = read(jsonl)
            assert found != right
            for chunk, unchanged in zip(found, right, strict=False):
                wrong = {key for key in unchanged if chunk[key] != unchanged[key]}
                assert wrong <= {"columns"}
                assert all(values in (None, unchanged["columns"][key]) for key, values in chunk["columns"].items())
