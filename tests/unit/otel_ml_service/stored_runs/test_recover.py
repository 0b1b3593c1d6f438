"""What finishing a run does that nobody works on anymore, and what it says of it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from otel_ml.config import Endpoint
from otel_ml.wire.rendezvous import Rendezvous, rendezvous_of
from otel_ml.wire.rendezvous import Service as Announcement
from otel_ml_service.stored_runs.read_records import records
from otel_ml_service.stored_runs.recover import Recovered, RunTakenError, recover, send
from otel_ml_service.stored_runs.run_folders import RunFolder
from otel_ml_service.stored_runs.run_history import history
from otel_ml_service.stored_runs.unfinished import Unfinished, marked_id, unfinished
from tests.otlp import FakeWriter, write_spool
from tests.otlp_server import otlp_server

pytestmark = pytest.mark.long

IN_TIME = 60.0


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of all runs, of a host on which nothing else is."""
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)
    settings = {"XDG_RUNTIME_DIR": str(tmp_path), "OTEL_ML_DIR": str(tmp_path / "runs"), "OTEL_ML_EXPORTERS": "jsonl"}
    for name, value in {**settings, "OTEL_ML_END_SILENCE": "1000"}.items():
        monkeypatch.setenv(name, value)
    return tmp_path / "runs"


def left(run_id: str, ranks: int) -> Rendezvous:
    """Leave the spools of dead ranks, of ten steps each."""
    rendezvous = rendezvous_of(run_id)
    rendezvous.create()
    for rank in range(ranks):
        writer = FakeWriter(experiment=run_id, rank=rank, world_size=ranks, extra={"ml.experiment.name": "digits"})
        write_spool(rendezvous.spool / f"rank{rank}-000000.spool", writer, range(10))
    return rendezvous


def nothing(account: Mapping[str, Any]) -> None:
    """Show no progress."""


def test_what_dead_ranks_left_is_delivered_and_counted(base: Path) -> None:
    rendezvous = left("01dead", 2)
    seen: list[Mapping[str, Any]] = []

    [run] = unfinished(base)
    found = recover(run, IN_TIME, seen.append)

    assert (run.id, run.experiment, run.name, run.base, run.spools) == ("01dead", "digits", "01dead", base, 2)
    assert (run.has_folder, run.exporters, run.is_of_serve, run.is_sending) == (False, (), False, False)
    assert run.belongs_to(base)
    assert found == Recovered(True, 20, 20, 2, ("jsonl",))
    assert history(records(run.folder)).get("loss") == dict.fromkeys(range(10), 0.25)
    assert not rendezvous.folder.exists()
    assert unfinished(base) == []
    assert seen == [] or max(account["recorded"] for account in seen if account) <= 20


def test_a_run_that_every_backend_has_was_whole(base: Path) -> None:
    left("01dead", 1)
    [run] = unfinished(base)
    recover(run, IN_TIME, nothing)
    run.folder.database.with_name("undelivered").write_text("01dead")

    [again] = unfinished(base)
    found = recover(again, IN_TIME, nothing)

    assert (again.spools, again.has_folder, again.folder.path) == (0, True, base / "digits" / "01dead")
    assert found == Recovered(True, 10, 10, 0, ("jsonl",), was_whole=True)
    assert marked_id(run.folder) is None


def test_a_run_in_which_nobody_was_ever_heard_is_over_and_empty(base: Path) -> None:
    folder = RunFolder(base / "digits" / "01empty")
    folder.database.parent.mkdir(parents=True)
    folder.database.with_name("open").write_text("01empty")

    run = Unfinished("01empty", "digits", "01empty", base, 0, rendezvous_of("01empty"), has_folder=True)
    found = recover(run, IN_TIME, nothing)

    assert (found.is_done, found.values, found.exporters, found.spools) == (True, 0, (), 0)
    assert marked_id(folder) is None


def test_a_run_that_was_removed_since_it_was_found_is_not_made_again(base: Path) -> None:
    run = Unfinished("01gone", "digits", "01gone", base, 0, rendezvous_of("01gone"), has_folder=True)

    assert recover(run, IN_TIME, nothing) == Recovered(is_done=True)
    assert not base.exists()


def test_a_run_that_another_process_has_is_left_alone(base: Path) -> None:
    left("01dead", 1)
    [run] = unfinished(base)
    lock = run.rendezvous.acquire()
    assert lock is not None
    try:
        with pytest.raises(RunTakenError, match=r"another process has run '01dead', or recovers it: look at it again"):
            recover(run, IN_TIME, nothing)
    finally:
        os.close(lock)

    assert run.spools_left == 1
    assert not run.folder.path.exists()


def test_what_ranks_with_a_service_elsewhere_left_is_sent_there(base: Path) -> None:
    rendezvous = left("01away", 1)
    [run] = unfinished(base)
    with otlp_server() as server:
        sent = send(run, Endpoint(server.url), IN_TIME, pytest.fail)

    assert sent.is_done
    assert [point.step for point in server.points("loss")] == list(range(10))
    assert not rendezvous.folder.exists()


def test_what_could_not_be_sent_is_kept(base: Path) -> None:
    rendezvous = left("01away", 1)
    [run] = unfinished(base)

    sent = send(run, Endpoint("http://127.0.0.1:9"), 0.2, pytest.fail)

    assert not sent.is_done
    assert [path.name for path in rendezvous.spool.iterdir()] == ["rank0-000000.spool"]


def test_a_run_is_finished_where_its_service_wrote_it_with_its_exporters(base: Path, tmp_path: Path) -> None:
    home = tmp_path / "elsewhere" / "digits" / "01dead"
    home.mkdir(parents=True)
    rendezvous = left("01dead", 1)
    os.close(rendezvous.publish(Announcement("http://127.0.0.1:9", "", os.getpid(), str(home), ("tensorboard",))))

    [run] = unfinished(base)
    gone = replace(run, base=base)

    assert (run.base, run.origin, run.has_folder, run.exporters) == (
        tmp_path / "elsewhere", tmp_path / "elsewhere", True, ("tensorboard",),
    )  # fmt: skip
    assert not run.belongs_to(base)
    assert gone.belongs_to(tmp_path / "elsewhere")
    home.rmdir()
    [without] = unfinished(base)
    assert (without.base, without.origin, without.has_folder) == (base, tmp_path / "elsewhere", False)
