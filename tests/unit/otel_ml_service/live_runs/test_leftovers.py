"""Spools that no service can take in now."""

from __future__ import annotations

import logging
from concurrent.futures import Future
from pathlib import Path

import pytest

from otel_ml.wire.spool_format import HEADER
from otel_ml_service.live_runs.leftover_spools import LeftoverSpools
from otel_ml_service.receiver.decode import Decoded, Decoder, Signal
from otel_ml_service.storage.database import StorageError
from tests.otlp import FakeWriter, write_spool
from tests.waiting import eventually


class Journal:
    """Has everything at once."""

    def __init__(self) -> None:
        self.taken: list[Decoded] = []

    def take(self, signal: Signal, body: bytes) -> Future[Decoded]:
        self.taken.append(Decoder().protobuf(signal, body))
        done: Future[Decoded] = Future()
        done.set_result(self.taken[-1])
        return done


def spool(path: Path, header: bytes) -> Path:
    write_spool(path, FakeWriter(instance=path.stem), range(2))
    path.write_bytes(header + path.read_bytes().removeprefix(HEADER))
    return path


def test_a_spool_of_a_newer_version_stays_for_who_can_read_it_and_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    newer, other = spool(tmp_path / "a.spool", b"otel_ml spool 2 9.1.0\n"), spool(tmp_path / "b.spool", HEADER)
    before = newer.read_bytes()
    journal = Journal()
    spools = LeftoverSpools(tmp_path, journal.take, lambda: None)

    with caplog.at_level(logging.ERROR):
        assert [spools.sweep(), spools.sweep()] == [1, 0]

    assert newer.read_bytes() == before
    assert not other.exists()
    assert len(journal.taken) == 1
    assert [record.getMessage() for record in caplog.records if "written by otel_ml 9.1.0" in record.getMessage()]
    assert len(caplog.records) == 1


class FullDisk(Journal):
    """Takes nothing until there is space."""

    has_space = False

    def __init__(self) -> None:
        super().__init__()
        self.left_meanwhile: list[str] = []
        self.spools: LeftoverSpools | None = None

    def take(self, signal: Signal, body: bytes) -> Future[Decoded]:
        assert self.spools is not None
        self.left_meanwhile.append(self.spools.left("a"))
        if not self.has_space:
            raise StorageError("the journal", "No space left on device")
        return super().take(signal, body)


def test_what_is_on_its_way_or_finds_no_space_is_told_from_what_nobody_takes(tmp_path: Path) -> None:
    journal = FullDisk()
    journal.spools = spools = LeftoverSpools(tmp_path, journal.take, lambda: None)
    spool(tmp_path / "a-000000.spool", HEADER)
    assert [spools.left("a"), spools.left("b")] == ["a spool", "nothing"]

    spools.start()
    eventually(lambda: journal.left_meanwhile and spools.left("a") == "being taken in")
    journal.has_space = True
    eventually(lambda: spools.left("a") == "nothing")
    spools.stop()

    assert set(journal.left_meanwhile) == {"being taken in"}
    assert len(journal.taken) == 1


def test_a_spool_with_a_damaged_beginning_is_kept_aside_and_not_deleted_as_an_empty_one(tmp_path: Path) -> None:
    damaged = spool(tmp_path / "a.spool", b"otel-ml spool 1\n")
    content = damaged.read_bytes()

    assert LeftoverSpools(tmp_path, Journal().take, lambda: None).sweep() == 0

    assert (tmp_path / "a.unreadable").read_bytes() == content


def test_a_spool_that_cannot_be_read_now_holds_up_no_other_one_and_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "a.spool").mkdir()
    other = spool(tmp_path / "b.spool", HEADER)
    journal = Journal()
    spools = LeftoverSpools(tmp_path, journal.take, lambda: None)

    with caplog.at_level(logging.ERROR):
        assert [spools.sweep(), spools.sweep()] == [1, 0]

    assert not other.exists()
    assert len(journal.taken) == 1
    assert [str(tmp_path / "a.spool") in record.getMessage() for record in caplog.records] == [True]


def test_a_service_that_cannot_say_where_it_is_on_a_full_disk_says_it_once_there_is_space(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    spool(tmp_path / "a.spool", HEADER)
    journal, said = Journal(), []

    def publish() -> None:
        said.append(len(journal.taken))
        if len(said) == 1:
            raise OSError(28, "No space left on device", "service.json")

    spools = LeftoverSpools(tmp_path, journal.take, publish)
    spools.start()
    spools.left("a")
    eventually(lambda: len(said) == 2)
    spools.stop()

    assert said == [1, 1]
    assert "No space left on device" in caplog.text
