"""A file says its form; what a newer otel_ml has written is not touched."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from otel_ml.exceptions import VersionError
from otel_ml.wire.versions import own_version
from otel_ml_exporters import Text
from otel_ml_service.storage import salvage
from otel_ml_service.storage.database import StorageError
from otel_ml_service.storage.journal import Journal
from otel_ml_service.storage.outbox import Commit, Outbox
from otel_ml_service.versions import JOURNAL, RUN


def outbox(path: Path) -> Any:
    return Outbox(path)


def journal(path: Path) -> Any:
    return Journal(path, lambda entries: None)


FILES = pytest.mark.parametrize(("opened", "version"), [(outbox, RUN), (journal, JOURNAL)])


def execute(path: Path, *statements: str) -> list[Any]:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        return [connection.execute(statement).fetchall() for statement in statements]


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@FILES
def test_a_new_file_says_its_version_and_who_wrote_it(
    tmp_path: Path, opened: Callable[[Path], Any], version: int
) -> None:
    path = tmp_path / "file.db"

    opened(path).close()

    assert execute(path, "PRAGMA user_version", "SELECT version FROM writer") == [[(version,)], [(own_version(),)]]


@FILES
@pytest.mark.parametrize("is_suspected", [False, True], ids=["whole", "said to be damaged"])
def test_a_file_of_a_newer_version_is_refused_by_name_and_keeps_its_bytes(
    tmp_path: Path, opened: Callable[[Path], Any], version: int, is_suspected: bool
) -> None:
    path = tmp_path / "file.db"
    opened(path).close()
    execute(
        path,
        "UPDATE writer SET version = '9.1.0'",
        "DROP TABLE IF EXISTS records",
        f"PRAGMA user_version = {version + 1}",
    )
    if is_suspected:
        salvage.suspect(path)
    before = contents(tmp_path)

    with pytest.raises(
        VersionError, match=rf"written by otel_ml 9\.1\.0, in version {version + 1} of its form"
    ) as raised:
        opened(path)

    assert f"this otel_ml, {own_version()}, reads up to version {version}" in str(raised.value)
    assert contents(tmp_path) == before


@FILES
def test_a_file_of_which_a_disk_has_taken_who_wrote_it_is_opened(
    tmp_path: Path, opened: Callable[[Path], Any], version: int
) -> None:
    path = tmp_path / "file.db"
    opened(path).close()
    execute(path, "DELETE FROM writer")

    opened(path).close()

    assert execute(path, "PRAGMA user_version") == [[(version,)]]


@FILES
def test_the_log_of_a_newer_service_that_was_killed_keeps_its_bytes_too(
    tmp_path: Path, opened: Callable[[Path], Any], version: int
) -> None:
    lived, killed = tmp_path / "lived", tmp_path / "killed"
    lived.mkdir()
    opened(lived / "file.db").close()
    with closing(sqlite3.connect(lived / "file.db", isolation_level=None)) as connection:
        connection.execute(f"PRAGMA user_version = {version + 1}")
        killed.mkdir()
        for name, content in contents(lived).items():  # as a kill leaves them: the version is in the log only
            if not name.endswith("-shm"):
                (killed / name).write_bytes(content)
    before = contents(killed)
    assert before.keys() == {"file.db", "file.db-wal"}

    with pytest.raises(VersionError):
        opened(killed / "file.db")

    assert contents(killed) == before


def test_a_file_that_another_service_has_open_is_said_to_be_in_use_whatever_its_version(tmp_path: Path) -> None:
    first = Outbox(tmp_path / "run.db")

    with pytest.raises(StorageError, match="in use by another otel_ml service"):
        Outbox(tmp_path / "run.db")

    first.close()


def test_an_older_file_has_the_new_version_from_the_commit_on_that_puts_it_into_that_form(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    Outbox(path).close()
    execute(path, "PRAGMA user_version = 1")

    Outbox(path).close()
    assert execute(path, "PRAGMA user_version") == [[(1,)]]

    again = Outbox(path)
    again.commit(Commit([Text(1, 1.0, "note", "step", None, "")]))
    again.close()
    assert execute(path, "PRAGMA user_version") == [[(RUN,)]]


def test_a_file_is_told_its_version_once_and_not_with_every_commit(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    Outbox(path).close()
    execute(path, "PRAGMA user_version = 1")
    statements: list[str] = []
    with closing(Outbox(path)) as outbox:
        outbox._connection.set_trace_callback(statements.append)
        for seq in (1, 2, 3):
            outbox.commit(Commit([Text(seq, 1.0, "note", "step", None, "")]))
        outbox._connection.set_trace_callback(None)

    assert len([statement for statement in statements if "user_version" in statement]) == 1
