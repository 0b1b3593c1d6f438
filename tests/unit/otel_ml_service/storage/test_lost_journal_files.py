"""Files of a journal that somebody deletes, moves or replaces while a service appends: what is in them stays stored."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from otel_ml_service.storage.journal_files import JournalFiles
from tests.unit.otel_ml_service.storage.test_sizes_of_journal_files import IDENTITY, MIB, names, request


def deleted(path: Path) -> None:
    path.unlink()


def moved(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))


def replaced(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.write_bytes(b"somebody else's")


def left(folder: Path, dropped: int = 0) -> list[int]:
    """Return the ids that a service finds that starts in the folder."""
    files = JournalFiles(folder, IDENTITY)
    found = [entry.id for entry in files.take_up(dropped).entries]
    files.close()
    return found


@pytest.mark.parametrize("lose", [deleted, moved, replaced])
@pytest.mark.parametrize("which", ["the full one", "the newest", "both"])
def test_what_was_in_a_file_that_is_gone_is_written_again_with_the_next_request(
    tmp_path: Path, lose: Callable[[Path], None], which: str
) -> None:
    files = JournalFiles(tmp_path, IDENTITY)
    files.take_up(0)
    files.append([request(1, 16 * MIB)])
    files.append([request(2, 10), request(3, 10)])
    files.drop(2)
    files.append([request(4, 10)])
    files.append([request(5, 16 * MIB)])
    files.append([request(6, 10)])
    full, newest = [tmp_path / name for name in names(tmp_path)]

    for path in {"the full one": [full], "the newest": [newest], "both": [full, newest]}[which]:
        lose(path)
        path.with_name("elsewhere").unlink(missing_ok=True)
    files.append([request(7, 10)])

    files.close()
    for path in (full, newest):
        if path.exists() and path.read_bytes() == b"somebody else's":
            path.unlink()
    assert left(tmp_path) == [3, 4, 5, 6, 7]


def test_where_nothing_is_gone_nothing_is_written_again(tmp_path: Path) -> None:
    files = JournalFiles(tmp_path, IDENTITY)
    files.take_up(0)
    files.append([request(1, 1000)])
    [name] = names(tmp_path)
    before = (tmp_path / name).stat().st_size

    files.write_lost_again()
    files.append([request(2, 1000)])

    assert names(tmp_path) == [name]
    assert (tmp_path / name).stat().st_size < 2 * before
    files.close()


def test_what_a_predecessor_had_dropped_is_known_to_the_next_one(tmp_path: Path) -> None:
    files = JournalFiles(tmp_path, IDENTITY)
    files.take_up(0)
    for number in range(1, 4):
        files.append([request(number, 10)])
    files.drop(2)
    files.note_dropped()
    files.close()

    assert left(tmp_path) == [3]
    again = JournalFiles(tmp_path, IDENTITY)
    found = again.take_up(0)
    assert (found.highest, found.dropped, again.dropped) == (3, 2, 2)
    size = sum((tmp_path / name).stat().st_size for name in names(tmp_path))
    again.note_dropped()
    assert sum((tmp_path / name).stat().st_size for name in names(tmp_path)) == size
    again.close()
