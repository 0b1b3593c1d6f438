"""When a file of the journal is begun, and when it goes: by its size, and by what of it is still needed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from otel_ml_service.storage.database import StorageError
from otel_ml_service.storage.journal_files import JournalFiles
from otel_ml_service.storage.journal_frames import Entry
from tests.full_disk import no_file_larger_than

MIB = 2**20
IDENTITY = "0123456789abcdef" * 2


def request(number: int, size: int = MIB) -> Entry:
    return Entry(number, "metrics", bytes([number]) * size)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def files(tmp_path: Path) -> Iterator[JournalFiles]:
    files = JournalFiles(tmp_path, IDENTITY)
    files.take_up(0)
    yield files
    files.close()


def test_a_file_takes_16_mib_and_then_another_one_is_begun(files: JournalFiles, tmp_path: Path) -> None:
    for number in range(1, 17):
        files.append([request(number)])
    assert len(names(tmp_path)) == 1

    files.append([request(17)])

    assert len(names(tmp_path)) == 2
    again = JournalFiles(tmp_path, IDENTITY)
    assert [entry.id for entry in again.take_up(0).entries] == list(range(1, 18))
    again.close()


def test_a_file_that_is_appended_to_stays_while_it_is_small_though_nothing_of_it_is_needed(
    files: JournalFiles, tmp_path: Path
) -> None:
    for number in range(1, 4):
        files.append([request(number)])
        files.drop(number)
    [kept] = names(tmp_path)
    files.append([request(4)])
    assert names(tmp_path) == [kept]

    files.drop(3)
    assert names(tmp_path) == [kept], "its last request is needed"
    files.drop(4)

    assert names(tmp_path) == []
    files.append([request(5, 10)])
    assert names(tmp_path) != [kept]


def test_a_full_file_goes_with_the_last_of_its_requests_and_not_sooner(files: JournalFiles, tmp_path: Path) -> None:
    files.append([request(1, 16 * MIB)])
    [first] = names(tmp_path)
    files.append([request(2, 10), request(3, 10)])
    [_, second] = names(tmp_path)

    files.drop(0)
    assert names(tmp_path) == [first, second]
    files.drop(1)
    assert names(tmp_path) == [second]
    files.drop(3)
    assert names(tmp_path) == [second], "it is small, and appended to"
    files.delete_dropped()
    assert names(tmp_path) == []


def test_what_finds_no_room_for_a_file_of_its_own_leaves_none_and_can_be_tried_again(
    files: JournalFiles, tmp_path: Path
) -> None:
    with no_file_larger_than(MIB), pytest.raises(StorageError):
        files.save([request(1, 10), request(2)])
    assert names(tmp_path) == []

    files.save([request(2), request(1, 10)])
    files.drop(1)
    assert len(names(tmp_path)) == 1, "the second one is needed, whichever came first"

    again = JournalFiles(tmp_path, IDENTITY)
    assert [entry.id for entry in again.take_up(0).entries] == [1, 2]
    again.close()


def test_links_and_folders_that_have_the_name_of_a_file_are_nobody_s_entries(
    files: JournalFiles, tmp_path: Path
) -> None:
    files.append([request(1, 10)])
    [name] = names(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / name).rename(tmp_path / "elsewhere" / name)
    (tmp_path / name).symlink_to(tmp_path / "elsewhere" / name)
    (tmp_path / "journal-7.log").mkdir()

    again = JournalFiles(tmp_path, IDENTITY)
    assert again.take_up(0).entries == []
    again.close()


def test_a_file_that_a_service_had_only_begun_says_nothing_and_goes(files: JournalFiles, tmp_path: Path) -> None:
    files.append([request(1, 10)])
    [name] = names(tmp_path)
    files.close()
    whole = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(whole[: whole.index(bytes([1]) * 10) - 60])

    again = JournalFiles(tmp_path, IDENTITY)
    found = again.take_up(0)

    assert (found.entries, found.highest, found.dropped) == ([], 0, 0)
    again.delete_dropped()
    assert [path for path in names(tmp_path) if "damaged" not in path] == []
    again.close()
