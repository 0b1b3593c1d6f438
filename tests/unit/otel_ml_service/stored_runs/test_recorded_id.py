"""A run's folder is called as a path can be; what backends know the run by is the id that it was recorded with."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from otel_ml.wire.rendezvous import run_folder
from otel_ml_service.cli.open_command import ViewerError, wandb_page
from otel_ml_service.live_runs.state_files import write_whole
from otel_ml_service.storage.outbox import Commit, Outbox
from otel_ml_service.stored_runs.read_records import records
from otel_ml_service.stored_runs.recorded_id import recorded_id
from otel_ml_service.stored_runs.replay import run_info
from otel_ml_service.stored_runs.run_folders import RunFolder
from tests.strategies import Rank, Service


def run_of(base: Path, run_id: str, said: str) -> tuple[RunFolder, Outbox]:
    """Return a run of two ranks of which one says its id, and its open database."""
    service = Service()
    ranks = [Rank(rank) for rank in range(2)]
    for rank in ranks:
        rank.writer = replace(rank.writer, experiment=said)
    service.take(*(rank.step(1, {"loss": 1.0}) for rank in ranks))
    run = RunFolder(run_folder(base, "exp", run_id))
    outbox = Outbox(run.database)
    outbox.commit(Commit(changes=dict(service.state)))
    return run, outbox


@pytest.mark.parametrize("run_id", ["01abc", "sweep/7", "ns:job 3", "x" * 200])
def test_a_replay_is_of_the_run_that_was_recorded(tmp_path: Path, run_id: str) -> None:
    run, outbox = run_of(tmp_path, run_id, run_id)
    outbox.close()

    assert run_info(run, list(records(run))).id == run_id


def test_it_is_known_while_a_service_has_the_run_open(tmp_path: Path) -> None:
    run, outbox = run_of(tmp_path, "sweep/7", "sweep/7")
    write_whole(run.path / "state" / "open", b"sweep/7")

    assert recorded_id(run) == "sweep/7"
    outbox.close()


def test_what_does_not_lead_to_the_folder_is_not_its_id(tmp_path: Path) -> None:
    run, outbox = run_of(tmp_path, "01copy", "sweep/7")  # somebody has renamed the folder, or it is a copy
    outbox.close()

    assert recorded_id(run) == "01copy"


def test_the_logs_of_an_offline_run_of_wandb_are_found_by_it(tmp_path: Path) -> None:
    run, outbox = run_of(tmp_path, "sweep/7", "sweep/7")
    outbox.close()
    (run.path / "wandb").mkdir()
    (run.path / "wandb" / "mode").write_text("offline")
    log = tmp_path / "wandb" / "offline-run-20260101_000000-sweep-7-0be0f9f0" / "run-sweep-7-0be0f9f0.wandb"
    log.parent.mkdir(parents=True)
    log.touch()

    with pytest.raises(ViewerError, match=f"wandb sync {log.parent}$|wandb sync {log.parent} "):
        wandb_page(run)
