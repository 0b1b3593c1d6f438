from __future__ import annotations

import json
import random
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from otel_ml_exporters.records import Record, Span, SpanBatch, StepRecord, Summary
from otel_ml_service.storage import shrink as shrink_module
from otel_ml_service.storage.outbox import Commit, Outbox
from otel_ml_service.storage.packed_rows import unpacked, value_of
from otel_ml_service.storage.shrink import shrink
from otel_ml_service.versions import RUN

STEPS = 3_000


def never() -> bool:
    return False


def rows() -> Sequence[Record]:
    """Return what a run of some length has: many steps, and a few of everything else."""
    seeded = random.Random(7)
    steps: list[Record] = [
        StepRecord(n, "trainer", "step", n, 0, n / 3, {f"train/metric_{k}": seeded.gauss(0, 1) for k in range(9)})
        for n in range(1, STEPS + 1)
    ]
    span = Span("0" * 32, "1" * 16, None, "forward", 1, 2, "trainer", 0, "step", 2, {"a": 1}, "ok")
    return [*steps, SpanBatch(STEPS + 1, [span] * 20), Summary(STEPS + 2, 1.0, {"ünï": float("inf")})]


def entries() -> dict[str, bytes]:
    seeded = random.Random(8)
    header = json.dumps([{"shape": 1, "reduction": ["mean", ""], "writers": [0], "columns": "1vssnnn"}]).encode()
    points = {f"disk/points/{n:010d}/0": header + b"\n" + seeded.randbytes(80) for n in range(STEPS)}
    return {"run": b'{"version": 7}', "who/0": b"x" * 200, **points, "disk/step/0/12": b"12"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    outbox = Outbox(tmp_path / "run.db")
    outbox.commit(Commit(rows(), entries(), ("journal-1", 7), ["Rank 3 is quiet."], {"rejected": "3"}))
    outbox.close()
    return outbox.path


def content(path: Path) -> object:
    """Return everything that a run goes on with, as the next service reads it."""
    with closing(Outbox(path)) as outbox:
        assert not outbox.damage
        stored = {key: outbox.entry(key) for key in list(entries())[::41]}
        return outbox.read(0, 2 * STEPS), stored, outbox.state(), outbox.facts, outbox.notices, outbox.consumed


def test_a_file_that_is_shrunk_is_less_than_half_as_large_and_holds_the_same(path: Path) -> None:
    before, size, written = content(path), path.stat().st_size, path.stat().st_mtime_ns

    shrink(path, never)

    assert path.stat().st_size < size / 2
    assert path.stat().st_mtime_ns == written
    assert content(path) == before
    assert not list(path.parent.glob("run.db-*"))


def test_rows_of_ten_sets_of_names_are_packed_with_some_of_each(tmp_path: Path) -> None:
    """With what one of them says, they take two fifths and more."""
    seeded = random.Random(7)
    words = ["".join(seeded.choices("abcdefghijklmnopqrstuvwxyz", k=12)) for _ in range(90)]
    names = [[f"train/{word}" for word in words[first : first + 9]] for first in range(0, 90, 9)]
    steps: list[Record] = []
    outbox = Outbox(tmp_path / "run.db")
    for n in range(1, 6_001):
        values = {name: float(seeded.randrange(100)) for name in names[n % 10]}
        steps.append(StepRecord(n, "trainer", "step", n, 0, n / 3, values))
    outbox.commit(Commit(steps))
    outbox.close()
    size = outbox.path.stat().st_size

    shrink(outbox.path, never)

    assert outbox.path.stat().st_size < 0.38 * size


def test_a_file_that_is_shrunk_goes_on_and_is_shrunk_again(path: Path) -> None:
    shrink(path, never)
    small = path.stat().st_size
    more = [StepRecord(STEPS + n, "trainer", "step", STEPS + n, 0, 1.0, {"other": n / 7}) for n in range(3, 3_000)]
    key = "disk/points/0000000005/0"

    outbox = Outbox(path)
    outbox.commit(Commit(more, {key: b"another", "disk/points/0000000006/0": None}))
    outbox.close()
    before = content(path)
    shrink(path, never)

    assert content(path) == before
    with closing(Outbox(path)) as outbox:
        assert outbox.read(STEPS + 2, 5_000) == more
        assert (outbox.entry(key), outbox.entry("disk/points/0000000006/0")) == (b"another", None)
    assert path.stat().st_size < 2 * small


def test_shrinking_stops_when_it_is_told_to_and_nothing_is_lost(path: Path) -> None:
    before = content(path)
    for questions in (0, 3, 8, 13, 16, 30):
        answers = iter([False] * questions)
        shrink(path, lambda answers=answers: next(answers, True))  # type: ignore[misc]
        assert content(path) == before


def test_whoever_is_stopped_while_the_file_is_written_anew_leaves_it_as_large_as_it_was_and_as_old(
    path: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shrink_module, "_INSTRUCTIONS", 1_000)  # so small a file takes few
    copy = tmp_path / "copy.db"
    copy.write_bytes(path.read_bytes())
    answers: list[bool] = []
    shrink(copy, lambda: bool(answers.append(False)))  # type: ignore[func-returns-value]
    before, size, written = content(path), path.stat().st_size, path.stat().st_mtime_ns

    left = iter([False] * (len(answers) - 1))
    with caplog.at_level("INFO"):
        shrink(path, lambda: next(left, True))

    assert copy.stat().st_size < size / 2
    assert path.stat().st_size == pytest.approx(size, rel=0.05)
    assert path.stat().st_mtime_ns == written
    assert not caplog.messages
    assert content(path) == before


KILLED = """
import os, signal, sys
from pathlib import Path
from otel_ml_service.storage.shrink import shrink

left = int(sys.argv[2])
def is_stopped():
    global left
    left -= 1
    if left < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return False

shrink(Path(sys.argv[1]), is_stopped)
"""


def test_killed_at_any_moment_the_file_holds_the_same_and_the_next_end_shrinks_it(path: Path) -> None:
    before, size = content(path), path.stat().st_size
    killed = 0

    for questions in (0, 2, 5, 9, 14, 20, 10_000):
        ended = subprocess.run([sys.executable, "-c", KILLED, str(path), str(questions)], check=False)
        killed += ended.returncode == -signal.SIGKILL
        assert content(path) == before

    assert ended.returncode == 0
    assert killed > 3
    assert path.stat().st_size < size / 2


def test_one_damaged_row_of_a_file_that_is_shrunk_costs_that_row_alone(path: Path) -> None:
    shrink(path, never)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE records SET record = substr(record, 1, 40) WHERE seq = 77")
        connection.commit()
    path.with_name("run.db.suspect").touch()

    with closing(Outbox(path)) as outbox:
        found = outbox.read(0, 2 * STEPS)

        assert outbox.damage
        assert [record.seq for record in found] == [n for n in range(1, STEPS + 3) if n != 77]
        assert outbox.entry("disk/points/0000000009/0") == entries()["disk/points/0000000009/0"]


@pytest.mark.parametrize(
    "statement",
    [f"PRAGMA user_version = {RUN + 1}", f"PRAGMA user_version = {RUN - 1}"],
    ids=["newer", "older, until a run goes on with it"],
)
def test_a_file_of_another_form_stays_as_it_is(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(statement)
    before = path.read_bytes()

    shrink(path, never)

    assert path.read_bytes()[100:] == before[100:]


def test_a_file_that_is_in_use_stays_as_it_is_and_the_log_says_why(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with closing(Outbox(path)), caplog.at_level("INFO"):
        shrink(path, never)

        assert f"{path} stays as large as it is: {str(path)!r} is in use" in caplog.text
        with closing(sqlite3.connect(f"file:{path}?immutable=1", uri=True)) as connection:
            (packed,) = connection.execute("SELECT COUNT(*) FROM records WHERE typeof(record) = 'blob'").fetchone()
    assert packed == 0


def test_nothing_of_a_small_file_is_packed(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path / "run.db")
    outbox.commit(Commit(rows()[:100]))
    outbox.close()
    before = outbox.path.read_bytes()

    shrink(outbox.path, never)

    assert outbox.path.read_bytes() == before


ROW = b'{"axis":"step","values":{"loss":0.25}}'
NAMES = b'{"axis":"step","values":{"loss":'
POINTS = b"points of a window, points of a window"


def test_what_version_7_packed_is_read() -> None:
    """What zlib makes of a row may differ from one build to the next; what it reads does not."""
    assert unpacked(bytes.fromhex("78bbb0c40aa3ab26206fa067645a5b0b00f57a0c62"), NAMES) == ROW
    stored = bytes.fromhex("371f71c078bb129803932b8031141215ca33f352f2cb751430c5000f730de3")
    assert value_of(stored, b"points of") == POINTS
    assert value_of(stored[:9] + b"x" + stored[10:], b"points of") is None


def test_an_entry_that_was_packed_with_names_that_are_damaged_is_not_there(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shrink(path, never)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        assert connection.execute("UPDATE dictionaries SET content = x'00'").rowcount > 0

    with closing(Outbox(path)) as outbox:
        assert outbox.entry("disk/points/0000000041/0") is None

    assert "a packed entry of the engine's state cannot be read" in caplog.text
