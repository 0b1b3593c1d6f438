from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from otel_ml_exporters.records import Image, Record
from otel_ml_service.storage.database import opened_to_read
from otel_ml_service.storage.outbox import Outbox
from otel_ml_service.storage.shrink import shrink
from otel_ml_service.stored_runs.follow_jsonl import Follower, UnreadableLineError
from otel_ml_service.stored_runs.read_records import RunUnreadableError, facts, is_live, records
from otel_ml_service.stored_runs.run_folders import RunFolder
from tests.recorded_run import digits_records, write_run


def test_both_sources_of_a_run_give_the_same_records(tmp_path: Path) -> None:
    image = Image(seq=1000, time=1.0, name="digits", axis="step", step=3, png=b"\x89PNG", width=1, height=1)
    written: list[Record] = [*digits_records(steps=5), image]
    run = write_run(tmp_path, "01abc", written)

    from_database = list(records(run))
    run.database.unlink()

    assert from_database == written
    assert list(records(run)) == written


def test_a_run_that_a_service_has_open_is_live_and_read_from_jsonl(tmp_path: Path) -> None:
    run = write_run(tmp_path, "01abc", digits_records(steps=5))

    with closing(Outbox(run.database)):
        assert is_live(run)
        assert facts(run) is None
        assert len(list(records(run))) == len(digits_records(steps=5))
    assert not is_live(run)


def test_looking_at_a_run_leaves_its_folder_as_it_was(tmp_path: Path) -> None:
    run = write_run(tmp_path, "01abc", digits_records(steps=5))
    before = sorted((path, path.stat().st_mtime_ns) for path in run.path.rglob("*"))

    is_live(run), facts(run), list(records(run))

    assert sorted((path, path.stat().st_mtime_ns) for path in run.path.rglob("*")) == before


def test_a_live_run_without_jsonl_says_what_to_do(tmp_path: Path) -> None:
    run = write_run(tmp_path, "01abc", digits_records(steps=5), exporters=[])

    with (
        closing(Outbox(run.database)),
        pytest.raises(RunUnreadableError, match="has written nothing yet, or it has none"),
    ):
        list(records(run))


@pytest.mark.parametrize("has_jsonl", [True, False])
def test_a_run_that_a_service_opens_while_it_is_read_is_read_on_from_jsonl(tmp_path: Path, has_jsonl: bool) -> None:
    written = digits_records(steps=2_000)
    run = write_run(tmp_path, "01abc", written, **({} if has_jsonl else {"exporters": []}))
    read = records(run)
    found = [next(read)]

    with closing(Outbox(run.database)):
        if has_jsonl:
            assert [*found, *read] == written
        else:
            with pytest.raises(RunUnreadableError, match="is being recorded"):
                list(read)


@pytest.mark.parametrize("read_before", [0, 1])
def test_a_run_that_is_removed_while_it_is_read_is_not_said_to_be_recorded_or_to_be_recovered(
    tmp_path: Path, read_before: int
) -> None:
    run = write_run(tmp_path, "01abc", digits_records(steps=2_000))
    read = records(run)
    for _ in range(read_before):
        next(read)

    shutil.rmtree(run.path)

    with pytest.raises(RunUnreadableError, match="was removed or moved") as raised:
        list(read)
    assert "recover" not in str(raised.value)


def test_a_run_that_is_made_small_while_it_is_read_gives_each_record_once(tmp_path: Path) -> None:
    written = digits_records(steps=5_000)
    run = write_run(tmp_path, "01abc", written, exporters=[])
    read = records(run)
    found = [next(read)]
    before = run.database.stat()

    shrink(run.database, lambda: False)

    assert run.database.stat().st_size < before.st_size
    assert run.database.stat().st_mtime_ns == before.st_mtime_ns
    assert [*found, *read] == written


def test_what_was_read_of_a_database_while_somebody_wrote_to_it_does_not_count(tmp_path: Path) -> None:
    run = write_run(tmp_path, "01abc", digits_records(steps=5_000), exporters=[])

    def read() -> None:
        with opened_to_read(run.database) as connection:
            rows = connection.execute("SELECT record FROM records ORDER BY seq")
            rows.fetchone()
            shrink(run.database, lambda: False)
            rows.fetchall()

    with pytest.raises(sqlite3.OperationalError, match="locked"):
        read()


def damaged(run: RunFolder, damage: str) -> None:
    """Leave `run.db` as a kill or a disk does, with the log that a service had beside it."""
    content = run.database.read_bytes()
    run.database.write_bytes(
        {
            "empty": b"",
            "cut off": content[: len(content) // 2],
            "no database": b"not a database" * 1000,
            "an entry": content.replace(b'"loss"', b'"lo\xffs"'),
        }[damage]
    )
    run.database.with_name("run.db-wal").write_bytes(b"" if damage == "empty" else b"torn" * 1000)


DAMAGES = pytest.mark.parametrize("damage", ["empty", "cut off", "no database", "an entry"])


@DAMAGES
def test_of_a_database_that_cannot_be_read_what_metrics_jsonl_has_is_read_and_that_is_said(
    tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    written = digits_records(steps=300)
    run = write_run(tmp_path, "01abc", written)
    damaged(run, damage)

    assert not is_live(run)
    assert facts(run) is None or damage == "an entry"
    assert list(records(run)) == written
    assert "run.db' cannot be read" in caplog.text
    assert "metrics.jsonl" in caplog.text


@DAMAGES
def test_a_database_that_cannot_be_read_is_named_where_there_is_no_metrics_jsonl(tmp_path: Path, damage: str) -> None:
    run = write_run(tmp_path, "01abc", digits_records(steps=300), exporters=[])
    damaged(run, damage)

    with pytest.raises(RunUnreadableError, match=r"run\.db' cannot be read"):
        list(records(run))


def test_the_records_before_one_that_cannot_be_read_are_read(tmp_path: Path) -> None:
    written = digits_records(steps=300)
    run = write_run(tmp_path, "01abc", written, exporters=[])
    with closing(sqlite3.connect(run.database)) as connection, connection:
        connection.execute("UPDATE records SET record = 'no record' WHERE seq = 100")
    found: list[Record] = []

    with pytest.raises(RunUnreadableError, match=r"run\.db' cannot be read"):
        found.extend(records(run))

    assert found == written[:99]


def test_a_line_that_is_being_written_comes_when_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    line = '{"seq":1,"type":"summary","time":0.5,"values":{"accuracy":0.9}}\n'
    follower = Follower(path)

    found = []
    for content in ("", line[:20], line, line + line[:5]):
        path.write_text(content)
        found.append(len(follower.new_records()))

    assert found == [0, 0, 1, 0]


def test_a_strange_line_is_named_with_its_number(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"seq":1,"type":"status","time":0.5,"status":"finished"}\n{"what": "is this"}\n')

    with pytest.raises(UnreadableLineError, match="line 2"):
        Follower(path).new_records()
