from __future__ import annotations

import hashlib
import logging
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from otel_ml.wire.rendezvous import kept_folder
from otel_ml_exporters.errors import RetryableExportError
from otel_ml_exporters.records import Artifact, RunInfo, StepRecord
from otel_ml_exporters.testing import FlakyExporter, RecordingExporter
from otel_ml_service.delivery.retries import RetryPolicy
from otel_ml_service.live_runs.live_run import LiveRun
from otel_ml_service.live_runs.run_settings import RunSettings
from otel_ml_service.storage.database import StorageError
from otel_ml_service.storage.outbox import Commit, Outbox
from otel_ml_service.telemetry import Telemetry
from tests.full_disk import no_file_larger_than
from tests.strategies import START, Rank
from tests.waiting import eventually


def test_an_exporter_at_work_is_told_the_tags_of_a_later_launch(tmp_path: Path) -> None:
    exporter = RecordingExporter()
    run = LiveRun("exp", tmp_path, RunSettings({"recording": lambda: exporter}), Telemetry(), journal="j")
    for entry, rank in enumerate([Rank(0, instance="a", tags=("one",)), Rank(0, instance="b", tags=("two",))], 1):
        run.observe(entry, rank.step(entry, {"x": 1.0}), START + entry)
        run.advance(START + entry)
        run.commit()
        eventually(lambda: exporter.run is not None and exporter.records)

    eventually(lambda: exporter.run is not None and exporter.run.tags == ("one", "two"))
    run.pipelines.ask_to_stop(10)
    run.close()


def test_exporters_for_which_the_host_has_no_thread_left_begin_as_soon_as_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_thread(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    made = {"one": RecordingExporter(), "two": RecordingExporter()}
    settings = RunSettings({"one": lambda: made["one"], "two": lambda: made["two"]})
    run = LiveRun("exp", tmp_path, settings, Telemetry(), journal="j")
    run.observe(1, Rank(0).step(0, {"x": 1.0}), START)
    run.advance(START + 60)
    with monkeypatch.context() as host:
        host.setattr(threading.Thread, "start", no_thread)
        run.commit()
        assert (run.pipelines.are_starting, run.pipelines.is_delivered) == (True, False)

    run.finish()

    eventually(lambda: run.pipelines.is_delivered)
    assert [len(exporter.records) for exporter in made.values()] == [run.outbox.last_seq] * 2
    run.pipelines.ask_to_stop(10)
    run.close()
    assert [exporter.is_closed for exporter in made.values()] == [True, True]


def test_a_run_for_which_there_never_was_a_thread_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_thread(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    run = LiveRun("exp", tmp_path, RunSettings({"one": RecordingExporter}), Telemetry(), journal="j")
    run.observe(1, Rank(0).step(0, {"x": 1.0}), START)
    run.advance(START + 60)
    with monkeypatch.context() as host:
        host.setattr(threading.Thread, "start", no_thread)
        run.commit()
        run.pipelines.ask_to_stop(0)
        run.close()

    assert run.pipelines.lacking == ("one",)


@pytest.mark.parametrize("fact", ["rejected", "self_telemetry", "files"])
def test_a_run_that_cannot_be_opened_is_closed_again(tmp_path: Path, fact: str) -> None:
    run = LiveRun("exp", tmp_path, RunSettings({}), Telemetry(), journal="j")
    run.outbox.commit(Commit(facts={fact: "{"}))
    run.close()

    with pytest.raises(ValueError, match=r"."):
        LiveRun("exp", tmp_path, RunSettings({}), Telemetry(), journal="j")

    Outbox(tmp_path / "state" / "run.db").close()  # one opener at a time


@pytest.mark.parametrize("commits", [1, 2])
def test_a_backend_that_was_away_is_tried_again_when_the_run_has_ended_however_short_it_was(
    tmp_path: Path, commits: int
) -> None:
    exporter, rank = FlakyExporter(lambda call, _: RetryableExportError("away") if call <= 1 else None), Rank(0)
    settings = RunSettings({"flaky": lambda: exporter}, retry=RetryPolicy(initial_s=1e9, maximum_s=1e9))
    run = LiveRun("exp", tmp_path, settings, Telemetry(), journal="j")
    for entry, seen in enumerate([rank.step(0, {"x": 1.0}), rank.bye()], 1):
        run.observe(entry, seen, START + entry)
        if entry == 2 or commits == 2:
            run.advance(START + 60 * entry)
            run.commit()

    eventually(lambda: run.status.state == "finished" and run.pipelines.is_delivered)
    run.pipelines.ask_to_stop(10)
    run.close()


def test_a_file_that_finds_no_space_is_tried_again_with_all_that_was_decided_with_it(tmp_path: Path) -> None:
    run = LiveRun("exp", tmp_path, RunSettings({}), Telemetry(), journal="j")
    rank = Rank(0)
    content = b"x" * 3_000_000
    facts = {"name": "model", "artifact.type": "model", "artifact.path_in": "model.bin", "artifact.size": len(content)}
    run.observe(1, [*rank.event("ml.artifact", content, **facts), *rank.step(0, {"x": 1.0})], START)
    run.advance(START)

    with no_file_larger_than(2_000_000), pytest.raises(OSError, match="File too large"):
        run.commit()
    run.commit()

    [artifact] = [record for record in run.outbox.read(0, 10) if isinstance(record, Artifact)]
    assert artifact.local is not None
    assert artifact.local.read_bytes() == content
    assert [record.seq for record in run.outbox.read(0, 10)] == list(range(1, run.outbox.last_seq + 1))
    run.close()


@contextmanager
def no_room_for_a_file(run: LiveRun) -> Iterator[None]:
    del run
    with no_file_larger_than(2_000_000):
        yield


@contextmanager
def no_room_for_a_commit(run: LiveRun) -> Iterator[None]:
    run.outbox._connection.execute("PRAGMA max_page_count=20")
    yield
    run.outbox._connection.execute("PRAGMA max_page_count=100000")


@pytest.mark.parametrize("no_room", [no_room_for_a_file, no_room_for_a_commit])
def test_what_came_while_a_run_could_not_be_stored_is_stored_by_the_first_commit_that_finds_room(
    tmp_path: Path, no_room: Callable[[LiveRun], AbstractContextManager[None]]
) -> None:
    run, rank = LiveRun("exp", tmp_path / "run", RunSettings({}), Telemetry(), journal="j"), Rank(0)
    content = b"x" * 3_000_000
    facts = {"name": "model", "artifact.path_in": "model.bin", "artifact.size": len(content)}
    names = [f"metric-{number}" for number in range(1_000)]

    run.observe(1, [*rank.event("ml.artifact", content, **facts), *rank.step(0, dict.fromkeys(names, 1.0))], START)
    run.advance(START)
    with no_room(run), pytest.raises((OSError, StorageError)):
        run.commit()
    run.observe(2, rank.step(1, {"x": 1.0}), START + 1)  # acknowledged meanwhile; nothing closes
    run.commit()
    shutil.copytree(tmp_path / "run", tmp_path / "killed")  # now the journal forgets both

    again = LiveRun("exp", tmp_path / "killed", RunSettings({}), Telemetry(), journal="j")
    again.observe(3, rank.bye(), START + 2)
    again.advance(START + 60)
    again.commit()
    steps = [record.step for record in again.outbox.read(0, 100) if isinstance(record, StepRecord)]
    assert steps == [0, 1]
    for each in (run, again):
        each.close()


def test_steps_are_delivered_while_a_large_file_is_hashed_and_a_stop_does_not_wait_for_it(tmp_path: Path) -> None:
    checkpoint = tmp_path / "large.ckpt"
    with checkpoint.open("wb") as file:
        file.truncate(2**40)  # takes an hour to hash, and no room
    run, rank = begun(tmp_path), Rank(0)
    facts = {"name": "model", "artifact.size": 2**40, "artifact.sha256": "0" * 64, "artifact.uri": checkpoint.as_uri()}
    run.observe(1, rank.event("ml.artifact", b"", **facts), START)
    for step in range(3):
        run.observe(2 + step, rank.step(step, {"x": 1.0}), START + step)
        run.advance(START + step)
        run.commit()

    assert [record.step for record in run.outbox.read(0, 10) if isinstance(record, StepRecord)] == [0, 1, 2]
    assert run.files.waiting == 1
    run.close()

    again = begun(tmp_path)
    assert again.files.waiting == 1
    again.close()


def test_a_file_that_was_looked_for_is_in_the_run_after_a_restart_too(tmp_path: Path) -> None:
    run, rank = begun(tmp_path), Rank(0)
    kept = kept_folder(tmp_path) / ("0" * 32)
    kept.parent.mkdir(parents=True)
    kept.write_bytes(b"x" * 5_000_000)
    facts = {"name": "model", "artifact.path_in": "model.bin", "artifact.size": 5_000_000, "artifact.kept": kept.name}
    modified = {"artifact.modified": kept.stat().st_mtime_ns}
    run.observe(1, rank.event("ml.artifact", b"", **facts, **modified), START)
    run.commit()
    run.close()

    again = begun(tmp_path)
    assert again.next_deadline() is not None
    eventually(lambda: again.advance(START) or again.files.waiting == 0)
    again.commit()

    [artifact] = [record for record in again.outbox.read(0, 10) if isinstance(record, Artifact)]
    assert artifact.local == tmp_path / "artifacts" / "model" / "model.bin"
    assert artifact.local.read_bytes() == b"x" * 5_000_000
    assert artifact.sha256 == hashlib.sha256(b"x" * 5_000_000).hexdigest()
    again.close()


def begun(folder: Path) -> LiveRun:
    return LiveRun("exp", folder, RunSettings({}), Telemetry(), journal="j")


def test_a_backend_is_being_opened_from_before_its_first_try_and_at_each_later_one_and_not_in_between(
    tmp_path: Path,
) -> None:
    opens, is_open = threading.Event(), threading.Event()

    class Backend(RecordingExporter):
        def start(self, run: RunInfo) -> None:
            opens.set()
            assert is_open.wait(60)
            super().start(run)

    away = RunSettings(
        {"backend": lambda: FlakyExporter(lambda *_: RetryableExportError("away"))}, retry=RetryPolicy(initial_s=1e9)
    )
    rank = Rank(0)
    run = LiveRun("exp", tmp_path, away, Telemetry(), journal="j")
    run.observe(1, rank.step(0, {"x": 1.0}), START)
    run.advance(START + 60)
    run.commit()
    eventually(lambda: run.pipelines.exporters["backend"].state == "retrying")
    assert not run.pipelines.are_starting
    run.pipelines.ask_to_stop(0.0)
    run.pipelines.join()
    run.close()

    again = LiveRun("exp", tmp_path, RunSettings({"backend": Backend}), Telemetry(), journal="j")
    assert again.pipelines.pending
    assert again.pipelines.are_starting  # nobody has begun to
    again.observe(2, rank.bye(), START + 100)
    again.advance(START + 120)
    again.commit()
    assert opens.wait(20)
    assert again.pipelines.are_starting
    is_open.set()
    eventually(lambda: again.pipelines.is_delivered)
    assert not again.pipelines.are_starting
    again.pipelines.ask_to_stop(10)
    again.close()


def test_a_run_whose_files_cannot_be_used_leaves_nothing_behind_however_often_it_is_tried(tmp_path: Path) -> None:
    (tmp_path / "late.otlp").mkdir()
    logger = logging.getLogger("otel_ml_service")
    before = list(logger.handlers)

    for _ in range(3):  # each request of such a run tries it
        with pytest.raises(IsADirectoryError):
            LiveRun("exp", tmp_path, RunSettings({}), Telemetry(), journal="j")

    assert logger.handlers == before
