"""Which runs are not done, and what of them this host has."""

from __future__ import annotations

import fcntl
import logging
import os
from pathlib import Path

import pytest

from otel_ml.wire.rendezvous import Rendezvous, rendezvous_of
from otel_ml.wire.rendezvous import Service as Announcement
from otel_ml.wire.spool_format import Frame, encode_frame, encode_head, read_spool
from otel_ml_service.stored_runs.run_folders import RunFolder
from otel_ml_service.stored_runs.unfinished import (
    has_writers,
    in_no_run,
    marked_id,
    spools_in,
    unfinished,
    unreadable_spools,
)
from tests.otlp import FakeWriter, write_spool
from tests.recorded_run import digits_records, write_run


@pytest.fixture(autouse=True)
def _host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "host"))
    (tmp_path / "host").mkdir(mode=0o700)


def meeting(run_id: str, *spools: str) -> Rendezvous:
    rendezvous = rendezvous_of(run_id)
    rendezvous.create()
    for name in spools:
        writer = FakeWriter(experiment=run_id, extra={"ml.experiment.name": "digits", "ml.run.name": "first"})
        write_spool(rendezvous.spool / f"{name}.spool", writer, range(2))
    return rendezvous


@pytest.mark.parametrize(
    ("mark", "content", "run_id"),
    [
        ("open", b"01abc", "01abc"),
        ("undelivered", b"01abc", "01abc"),
        ("open", b"", "run-7"),
        ("open", b"\xff\xfe", "run-7"),
        ("other", b"01abc", None),
    ],
)
def test_a_run_that_is_not_done_has_a_mark_with_its_id(
    tmp_path: Path, mark: str, content: bytes, run_id: str | None
) -> None:
    folder = RunFolder(tmp_path / "digits" / "run-7")
    folder.database.parent.mkdir(parents=True)
    folder.database.with_name(mark).write_bytes(content)

    assert marked_id(folder) == run_id


def test_a_mark_that_nobody_lets_us_read_is_left_alone_and_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = RunFolder(tmp_path / "digits" / "run-7")
    folder.database.with_name("open").mkdir(parents=True)

    with caplog.at_level(logging.WARNING):
        assert marked_id(folder) is None

    assert f"{folder.path} is left alone: Is a directory." in caplog.text


def test_runs_with_a_mark_or_with_spools_are_unfinished_and_each_is_there_once(tmp_path: Path) -> None:
    base = tmp_path / "runs"
    for run_id in ("01done", "02open", "03both"):
        run = write_run(base, run_id, digits_records(steps=2))
        if run_id != "01done":
            run.database.with_name("open").write_text(run_id)
    meeting("03both", "rank0-000000", "rank1-000000")
    meeting("04spools", "rank0-000000")
    meeting("05nothing")

    found = {run.id: run for run in unfinished(base)}

    assert {run_id: run.spools for run_id, run in found.items()} == {"03both": 2, "04spools": 1, "02open": 0}
    assert {run_id: run.has_folder for run_id, run in found.items()} == {
        "02open": True, "03both": True, "04spools": False,
    }  # fmt: skip
    assert {run_id: run.name for run_id, run in found.items()} == {
        "02open": "02open", "03both": "first", "04spools": "first",
    }  # fmt: skip
    assert {run.is_of_serve for run in found.values()} == {False}


def test_a_run_that_is_served_is_no_unfinished_one(tmp_path: Path) -> None:
    rendezvous = meeting("01live", "rank0-000000")
    announced = rendezvous.publish(Announcement("http://127.0.0.1:9", "", os.getpid(), str(tmp_path), ("jsonl",)))
    try:
        assert unfinished(tmp_path / "runs") == []
    finally:
        os.close(announced)
    assert [run.id for run in unfinished(tmp_path / "runs")] == ["01live"]


def test_a_run_is_meant_by_its_id_its_experiment_or_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_run(tmp_path, "01abc", digits_records(steps=2)).database.with_name("open").write_text("01abc")
    [run] = unfinished(tmp_path)
    monkeypatch.chdir(tmp_path / "digits")

    meant = ["01abc", "digits/01abc", str(tmp_path / "digits" / "01abc"), "./01abc", "01ab", "other/01abc", "digits"]
    assert [run.is_meant_by(text) for text in meant] == [True, True, True, True, False, False, False]


def test_a_spool_with_a_writer_is_locked(tmp_path: Path) -> None:
    rendezvous = meeting("01abc", "rank0-000000", "rank1-000000")
    (rendezvous.spool / "other.txt").touch()

    assert spools_in(rendezvous) == 2
    assert not has_writers(rendezvous)
    with (rendezvous.spool / "rank1-000000.spool").open("rb") as rank:
        fcntl.flock(rank, fcntl.LOCK_EX)
        assert has_writers(rendezvous)
    with (rendezvous.spool / "rank1-000000.spool").open("rb") as rank:
        fcntl.flock(rank, fcntl.LOCK_SH)
        assert not has_writers(rendezvous), "somebody else looks at it"


def test_spools_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    rendezvous = meeting("01abc", "rank0-000000")
    (rendezvous.spool / "a-000000.spool").mkdir()
    (rendezvous.spool / "b-000000.spool").write_bytes(b"not a spool, and long enough to be one" * 10)

    first, second = unreadable_spools()

    assert first == (
        f"The spool {rendezvous.spool / 'a-000000.spool'} cannot be read: Is a directory. (otel-ml explain storage)"
    )
    assert "b-000000.spool" in second


def test_where_nothing_was_acknowledged_no_request_is_in_no_run(tmp_path: Path) -> None:
    assert in_no_run(tmp_path, "") == 0


def test_processes_that_send_to_an_endpoint_of_the_users_are_told_from_those_that_ended(tmp_path: Path) -> None:
    rendezvous = meeting("01away", "rank9-000000")
    resource = read_spool(rendezvous.spool / "rank9-000000.spool").resource
    frame = Frame("M", b"values")
    content = encode_frame(frame) + frame.payload
    for name, endpoint, left in (
        ("rank0-000001", "http://a:4318", content),
        ("rank0-000002", "http://b:4318", content),
        ("rank1-000000", "http://c:4318", content),
        ("rank2-000000", "http://d:4318", b""),
    ):
        head = b"".join(encode_head(resource, endpoint, "OTEL_EXPORTER_OTLP_ENDPOINT"))
        (rendezvous.spool / f"{name}.spool").write_bytes(head + left)

    [over] = unfinished(tmp_path / "runs")
    with (rendezvous.spool / "rank1-000000.spool").open("rb") as rank:
        fcntl.flock(rank, fcntl.LOCK_EX)
        [alive] = unfinished(tmp_path / "runs")

    assert over.sent_to == {"rank0": "http://b:4318", "rank1": "http://c:4318"}
    assert (over.variable, over.is_sending) == ("OTEL_EXPORTER_OTLP_ENDPOINT", False)
    assert alive.sent_to == {"rank0": "http://b:4318"}
    assert alive.is_sending


def test_of_processes_with_endpoints_in_several_variables_all_are_named(tmp_path: Path) -> None:
    rendezvous = meeting("01away", "rank9-000000")
    spool = rendezvous.spool / "rank9-000000.spool"
    resource = read_spool(spool).resource
    spool.unlink()
    for rank, variable in enumerate(("B", "A", "B")):
        (rendezvous.spool / f"rank{rank}-000000.spool").write_bytes(
            b"".join(encode_head(resource, "http://a", variable))
        )

    [run] = unfinished(tmp_path / "runs")

    assert (run.variable, run.sent_to, run.spools) == ("A and B", {}, 3)
