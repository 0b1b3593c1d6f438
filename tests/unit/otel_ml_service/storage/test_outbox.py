from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from otel_ml_exporters import Image, Record, Summary, Text
from otel_ml_service.storage import outbox as outbox_module
from otel_ml_service.storage import recent_records
from otel_ml_service.storage.database import StorageError
from otel_ml_service.storage.exporter_marks import Mark
from otel_ml_service.storage.outbox import Commit, Outbox
from otel_ml_service.storage.record_codec import encode


def records(first: int, last: int) -> list[Summary]:
    return [Summary(seq, float(seq), {"x": seq / 3}) for seq in range(first, last + 1)]


def test_everything_of_a_commit_is_there_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "state" / "run.db"
    outbox = Outbox(path)
    outbox.commit(Commit(records(1, 3), {"a": b"1", "b": b"2"}, ("journal-1", 7), ["Rank 3 is quiet."]))
    outbox.set_mark("jsonl", Mark(2, {"too large": 1}))
    outbox.commit(Commit(records(4, 4), {"a": None, "c": b"3"}, ("journal-1", 9), ["Rank 3 is quiet.", "It is back."]))
    outbox.close()

    again = Outbox(path)

    assert again.read(0, 10) == records(1, 4)
    assert again.state() == {"b": b"2", "c": b"3"}
    assert again.consumed == ("journal-1", 9)
    assert again.notices == ["Rank 3 is quiet.", "It is back."]
    assert again.mark("jsonl") == Mark(2, {"too large": 1})
    assert again.mark("wandb") == Mark()
    again.close()


def test_a_commit_that_fails_leaves_nothing_and_can_be_tried_again(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path / "run.db")
    outbox.commit(Commit(records(1, 1)))
    outbox.set_mark("jsonl", Mark(1))
    outbox._connection.execute("PRAGMA max_page_count=12")
    large = Commit(records(2, 2), {"state": b"x" * 1_000_000})

    with pytest.raises(StorageError, match="No space left"):
        outbox.commit(large)

    assert (outbox.last_seq, outbox.unsaved, outbox.state()) == (1, True, {})
    outbox._connection.execute("PRAGMA max_page_count=100000")
    outbox.commit(large)
    assert (outbox.last_seq, outbox.unsaved) == (2, False)
    outbox.close()


@pytest.mark.parametrize("after", [0, 1, 3, 5, 9, 10, 11])
def test_records_are_the_same_from_memory_and_from_disk(tmp_path: Path, after: int) -> None:
    outbox = Outbox(tmp_path / "run.db")
    for first in (1, 4, 7, 10):
        outbox.commit(Commit(records(first, min(first + 2, 10))))
    from_memory = outbox.read(after, 4)
    outbox.close()

    reopened = Outbox(tmp_path / "run.db")

    assert from_memory == reopened.read(after, 4) == records(after + 1, min(after + 4, 10))
    reopened.close()


def test_listeners_hear_of_records_and_of_nothing_else(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path / "run.db")
    heard: list[int] = []
    outbox.subscribe("jsonl", lambda: heard.append(outbox.last_seq))

    outbox.commit(Commit(records(1, 2)))
    outbox.commit(Commit(changes={"a": b"1"}))
    outbox.close()

    assert heard == [2]


def test_forgotten_records_are_gone_and_the_rest_is_still_found(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path / "run.db")
    outbox.commit(Commit(records(1, 10)))

    outbox.forget(4)

    assert outbox.first_seq == 5
    assert outbox.read(0, 3) == records(5, 7)
    assert outbox.read(6, 3) == records(7, 9)
    outbox.close()


def test_the_run_cannot_be_opened_twice(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path / "run.db")

    with pytest.raises(StorageError, match="in use by another otel_ml service"):
        Outbox(tmp_path / "run.db")
    outbox.close()


def test_what_lies_right_before_the_records_in_memory_is_read_from_the_disk(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    outbox = Outbox(path)
    outbox.commit(Commit(records(1, 3)))
    outbox.close()

    again = Outbox(path)
    again.commit(Commit(records(4, 6)))

    assert [again.read(after, 10) for after in range(6)] == [records(after + 1, 6) for after in range(6)]
    again.close()


def test_what_a_backend_has_before_a_file_has_given_it_any_is_from_elsewhere_at_every_later_start(
    tmp_path: Path,
) -> None:
    path = tmp_path / "run.db"
    outbox = Outbox(path)
    outbox.commit(Commit(records(1, 2)))

    assert outbox.seq_offset("mlflow", 500) == 500
    assert outbox.seq_offset("wandb", 0) == 0
    outbox._connection.close()  # as a kill: nothing is committed after it
    again = Outbox(path)
    assert again.seq_offset("mlflow", 502) == 500
    assert again.seq_offset("wandb", 2) == 0
    again.close()


def test_what_a_backend_has_is_from_the_file_that_has_a_mark_of_it(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path / "run.db")
    outbox.set_mark("mlflow", Mark(1))
    outbox.commit(Commit(records(1, 2)))

    assert outbox.seq_offset("mlflow", 2) == 0
    assert outbox.seq_offset("mlflow", 500) == 0, "an older version has delivered, and lost its end"
    outbox.close()


def test_what_a_backend_was_given_by_a_replay_of_the_file_is_from_the_file(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path / "run.db")
    outbox.commit(Commit(records(1, 5)))
    outbox.close()

    again = Outbox(tmp_path / "run.db")  # with an exporter that it did not have before
    again.commit(Commit(records(6, 7)))

    assert again.seq_offset("mlflow", 5) == 0
    assert again.seq_offset("wandb", 500) == 500, "more than the file ever had"
    again.close()


def large_text(seq: int, size: int) -> Record:
    return Text(seq, 0.0, "log", "step", None, "x" * size)


def large_image(seq: int, size: int) -> Record:
    return Image(seq, 0.0, "i", "step", None, bytes(size), 1, 1)


def stored_size(record: Record) -> int:
    _, text, media = encode(record)
    return len(text) + len(media or b"")


@pytest.mark.parametrize("record", [large_text, large_image])
def test_a_batch_is_as_many_records_as_fit_and_one_that_fits_nowhere_comes_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record: Callable[[int, int], Record]
) -> None:
    monkeypatch.setattr(outbox_module, "_READ_BYTES", 3 * stored_size(record(1, 2**18)))  # three fit, to the last byte
    monkeypatch.setattr(recent_records, "MAX_BYTES", 0)  # all are read from the disk
    outbox = Outbox(tmp_path / "run.db")
    sizes = [2**18] * 7 + [2**21, 10, 2**21]
    for seq, size in enumerate(sizes, start=1):
        outbox.commit(Commit([record(seq, size)]))

    batches, after = [], 0
    while batch := outbox.read(after, 1000):
        batches.append([found.seq for found in batch])
        after = batch[-1].seq
    outbox.close()

    assert batches == [[1, 2, 3], [4, 5, 6], [7], [8], [9], [10]]


@pytest.mark.parametrize("record", [large_text, large_image])
def test_of_the_newest_records_those_that_fit_stay_in_memory_whatever_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record: Callable[[int, int], Record]
) -> None:
    monkeypatch.setattr(recent_records, "MAX_BYTES", 3 * stored_size(record(1, 2**18)))  # three fit, to the last byte
    with closing(Outbox(tmp_path / "run.db")) as outbox:
        for seq in range(1, 8):
            outbox.commit(Commit([record(seq, 2**18)]))
        outbox._connection.execute("UPDATE records SET kind = 'unknown'")  # who reads from the disk now is refused

        assert [found.seq for found in outbox.read(4, 10)] == [5, 6, 7]
        with pytest.raises(StorageError):
            outbox.read(3, 10)
        outbox.forget(6)
        assert outbox._recent.size == pytest.approx(2**18, abs=1000)


def test_a_mark_that_is_on_its_way_to_the_disk_is_not_there_yet(tmp_path: Path) -> None:
    with closing(Outbox(tmp_path / "run.db")) as outbox:
        outbox.set_mark("jsonl", Mark(3, {"bad": 1}))
        with outbox._marks.taken() as rows:
            assert [*rows] == [("jsonl", 3, '{"bad": 1}')]
            assert outbox.unsaved

        assert not outbox.unsaved
