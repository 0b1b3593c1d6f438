from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

from otel_ml_service.live_runs.late_file import LateFile, read_late
from tests.full_disk import no_file_larger_than


def written(path: Path, *bodies: bytes) -> int:
    file = LateFile(path, 0, 10_000)
    file.append(bodies)
    return file.length


def test_what_was_appended_and_not_committed_is_taken_back_at_the_next_start(tmp_path: Path) -> None:
    path = tmp_path / "late.otlp"
    committed = written(path, b"one", b"two")
    LateFile(path, committed, 10_000).append([b"killed before the commit"])

    again = LateFile(path, committed, 10_000)

    assert read_late(path).bodies == [b"one", b"two"]
    again.append([b"three"])
    assert read_late(path) == ([b"one", b"two", b"three"], 0)


@pytest.mark.parametrize("torn", range(1, 12))
def test_of_a_file_torn_at_any_byte_the_whole_requests_are_read_and_the_rest_is_said(tmp_path: Path, torn: int) -> None:
    path = tmp_path / "late.otlp"
    written(path, b"one", b"another")
    path.write_bytes(path.read_bytes()[:-torn])

    found = read_late(path)

    assert found.bodies == [b"one"]
    assert found.torn == 11 - torn


def test_zeros_that_a_power_cut_left_are_no_requests(tmp_path: Path) -> None:
    path = tmp_path / "late.otlp"
    written(path, b"one")
    path.write_bytes(path.read_bytes() + bytes(64))

    assert read_late(path) == ([b"one"], 64)


def test_where_no_commit_tells_the_length_all_that_is_whole_counts(tmp_path: Path) -> None:
    path = tmp_path / "late.otlp"
    written(path, b"one", b"two")
    path.write_bytes(path.read_bytes() + b"\x00\x00\x00\x09half")

    LateFile(path, None, 10_000).append([b"three"])

    assert read_late(path) == ([b"one", b"two", b"three"], 0)


def test_to_open_a_large_file_takes_no_memory_for_what_is_in_it(tmp_path: Path) -> None:
    path = tmp_path / "late.otlp"
    file = LateFile(path, 0, 2**30)
    for _ in range(4):
        file.append([bytes(8 * 2**20)])

    tracemalloc.start()
    opened = LateFile(path, file.length, 2**30)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert opened.length == file.length
    assert most < 2**20


def test_an_append_for_which_there_is_no_space_may_be_tried_again(tmp_path: Path) -> None:
    path = tmp_path / "late.otlp"
    file = LateFile(path, 0, 10_000)

    with no_file_larger_than(50), pytest.raises(OSError, match="File too large"):
        file.append([b"x" * 40, b"y" * 40])
    file.append([b"x" * 40, b"y" * 40])

    assert read_late(path) == ([b"x" * 40, b"y" * 40], 0)


def test_beyond_its_limit_it_takes_no_more_and_says_how_much_it_left_out(tmp_path: Path) -> None:
    path = tmp_path / "late.otlp"
    file = LateFile(path, 0, 30)

    assert file.append([b"x" * 10, b"y" * 20, b"z" * 8]) == 1
    assert read_late(path).bodies == [b"x" * 10, b"z" * 8]
    assert path.stat().st_size <= 30


def test_a_file_that_somebody_removed_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "late.otlp"
    committed = written(path, b"one")
    path.unlink()

    LateFile(path, committed, 10_000).append([b"two"])

    assert read_late(path).bodies == [b"two"]


def test_a_file_that_is_removed_while_it_is_written_begins_anew_and_what_is_gone_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "late.otlp"
    file = LateFile(path, 0, 10_000)
    file.append([b"one"])
    gone = file.length
    path.unlink()

    file.append([b"two"])

    assert read_late(path) == ([b"two"], 0)
    assert file.gone == gone
