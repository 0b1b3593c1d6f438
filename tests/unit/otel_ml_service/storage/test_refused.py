"""What a disk, a system or another service refuses: whether it is tried again depends on what is said of it."""

from __future__ import annotations

import errno
import gc
import os
import resource
import sqlite3
import stat
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from otel_ml_exporters import Summary
from otel_ml_service.storage import salvage
from otel_ml_service.storage.database import NoSpaceError, StorageError, insert, private_folder
from otel_ml_service.storage.exporter_marks import Mark
from otel_ml_service.storage.journal import Journal
from otel_ml_service.storage.outbox import Commit, Outbox


def outbox(path: Path) -> Any:
    return Outbox(path)


def journal(path: Path) -> Any:
    return Journal(path, lambda entries: None)


FILES = pytest.mark.parametrize("opened", [outbox, journal])


@contextmanager
def no_more_files_than(count: int) -> Iterator[None]:
    """Let this process open `count` files more, and no further ones."""
    gc.collect()  # or files that tests before have left are closed meanwhile, and give room
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Each takes the lowest number that is free: up to the last one none is then, however many this process has open.
    taken = [os.open(os.devnull, os.O_RDONLY) for _ in range(40)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (taken[-1] + 1, before[1]))
    try:
        for handle in taken[:count]:
            os.close(handle)
        del taken[:count]
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        for handle in taken:
            os.close(handle)


@FILES
def test_however_few_files_may_be_opened_it_is_said_so_and_tried_again(
    tmp_path: Path, opened: Callable[[Path], Any]
) -> None:
    path = tmp_path / "state" / "file.db"
    opened(path).close()
    refused = []
    for count in range(8):
        with no_more_files_than(count):
            try:
                opened(path).close()
            except StorageError as error:
                refused.append(error)

    assert 0 < len(refused) < 8
    assert {type(error) for error in refused} == {NoSpaceError}
    assert all("as many files open as it may" in str(error) for error in refused)
    opened(path).close()


def test_a_file_that_may_only_be_read_has_no_room_and_keeps_what_it_has(tmp_path: Path) -> None:
    with closing(Outbox(tmp_path / "run.db")) as found:
        found.commit(Commit([Summary(1, 1.0, {"x": 1.0})]))
        found._connection.execute("PRAGMA query_only=1")

        with pytest.raises(NoSpaceError, match="it is read-only"):
            found.commit(Commit([Summary(2, 2.0, {"x": 2.0})]))

        found._connection.execute("PRAGMA query_only=0")
        found.commit(Commit([Summary(2, 2.0, {"x": 3.0})]))
        assert found.read(0, 10) == [Summary(1, 1.0, {"x": 1.0}), Summary(2, 2.0, {"x": 3.0})]


@pytest.mark.parametrize(
    ("number", "is_tried_again"),
    [
        (errno.ENOSPC, True), (errno.EDQUOT, True), (errno.EROFS, True), (errno.EMFILE, True), (errno.ENFILE, True),
        (errno.EFBIG, True),
        (errno.EACCES, False), (errno.EPERM, False), (errno.ENOTDIR, False),
    ],
)  # fmt: skip
def test_a_folder_that_cannot_be_made_is_tried_again_where_room_may_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, is_tried_again: bool
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Path, "mkdir", refused)

    with pytest.raises(StorageError, match=rf"Cannot create the folder .*{os.strerror(number)}") as raised:
        private_folder(tmp_path / "state")

    assert isinstance(raised.value, NoSpaceError) == is_tried_again


def test_a_folder_of_a_disk_that_became_read_only_is_used_to_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = errno.EROFS

    def refused(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    tmp_path.chmod(0o755)
    monkeypatch.setattr(Path, "chmod", refused)

    assert private_folder(tmp_path) == tmp_path
    number = errno.EPERM
    with pytest.raises(StorageError, match="Operation not permitted"):
        private_folder(tmp_path)


@pytest.mark.parametrize("mode", [0o750, 0o705, 0o777, 0o710, 0o701])
def test_a_folder_that_others_may_look_into_is_closed_to_them(tmp_path: Path, mode: int) -> None:
    tmp_path.chmod(mode)

    private_folder(tmp_path)

    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o700


def test_a_folder_that_is_closed_to_others_stays_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    tmp_path.chmod(0o700)
    monkeypatch.setattr(Path, "chmod", refused)

    assert private_folder(tmp_path) == tmp_path


@FILES
def test_a_damaged_file_that_cannot_be_opened_now_is_rescued_when_it_can_be(
    tmp_path: Path, opened: Callable[[Path], Any]
) -> None:
    path = tmp_path / "file.db"
    opened(path).close()
    before = path.stat().st_ino
    salvage.suspect(path)
    refused = 0
    for count in range(14):
        with no_more_files_than(count):
            try:
                opened(path).close()
            except NoSpaceError:
                refused += 1
                assert path.stat().st_ino == before
                continue
        break

    assert refused > 4, "there is the new file, too"
    assert opened(path).damage == ""


@FILES
def test_what_stands_where_a_file_belongs_is_no_lack_of_files(tmp_path: Path, opened: Callable[[Path], Any]) -> None:
    path = tmp_path / "file.db"
    path.mkdir()
    salvage.suspect(path)  # or the folder is not even looked at

    with pytest.raises(StorageError, match=r"Cannot use .*file.db': unable to open database file") as raised:
        opened(path)

    assert not isinstance(raised.value, NoSpaceError)
    assert path.is_dir()


def test_a_run_that_cannot_keep_its_exporters_positions_closes_all_the_same_and_the_log_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "run.db"
    found = Outbox(path)
    found.commit(Commit([Summary(1, 1.0, {"x": 1.0})]))
    found.set_mark("jsonl", Mark(1))
    found._connection.execute("PRAGMA query_only=1")

    found.close()

    assert "The exporters' positions are not stored" in caplog.text
    with closing(Outbox(path)) as again:
        assert (again.read(0, 10), again.mark("jsonl")) == ([Summary(1, 1.0, {"x": 1.0})], Mark())


def test_where_nobody_can_tell_whether_a_file_has_its_name_it_is_not_written_anew(tmp_path: Path) -> None:
    path = tmp_path / "state" / "run.db"
    with closing(Outbox(path)) as found:
        path.parent.rename(tmp_path / "elsewhere")
        path.parent.symlink_to(path.parent)  # a loop: no file can be looked up beneath it

        assert found.is_intact


@FILES
def test_a_file_in_use_stays_where_it_is_though_it_is_said_to_be_damaged(
    tmp_path: Path, opened: Callable[[Path], Any]
) -> None:
    path = tmp_path / "file.db"
    first = opened(path)
    salvage.suspect(path)
    before = path.stat().st_ino

    with pytest.raises(StorageError, match="in use by another otel_ml service"):
        opened(path)

    assert path.stat().st_ino == before
    assert not list(tmp_path.glob("*.damaged-*"))
    first.close()


def test_any_number_of_rows_goes_in_at_once() -> None:
    """SQLite takes 250,000 values a statement, or 32,766."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE TABLE kept (id INTEGER PRIMARY KEY, a, b, c)")

        last = insert(connection, "INSERT INTO kept (a, b, c)", ((n, "", b"") for n in range(90_000)))

        assert last == 90_000
        assert connection.execute("SELECT count(*), sum(a) FROM kept").fetchone() == (90_000, 44_999 * 90_000 + 45_000)
