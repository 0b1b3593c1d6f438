"""Which rank was in which stage, and on which host, is read from the folder of a run."""

from __future__ import annotations

import json
from pathlib import Path

from otel_ml_service.storage.outbox import Commit, Outbox
from otel_ml_service.stored_runs.rank_places import hosts_of, stages_of
from otel_ml_service.stored_runs.run_folders import RunFolder
from tests.strategies import Rank, Service


def run_of(folder: Path, ranks: list[Rank]) -> tuple[RunFolder, Outbox]:
    service = Service()
    service.take(*(rank.step(1, {"time/compute": 1.0}, "sum>max") for rank in ranks))
    run = RunFolder(folder / "exp" / "01stages")
    outbox = Outbox(run.database)
    outbox.commit(Commit(changes=dict(service.state)))
    return run, outbox


def test_ranks_have_the_stages_they_said(tmp_path: Path) -> None:
    said = [Rank(rank, world_size=4, topology=(("dp", rank % 2, 2), ("pp", rank // 2, 2))) for rank in range(4)]
    run, outbox = run_of(tmp_path, [*said, Rank(0, role="generator", topology=(("pp", 7, 8),))])
    outbox.close()

    assert stages_of(run, "trainer") == {0: 0, 1: 0, 2: 1, 3: 1}
    assert stages_of(run, "generator") == {0: 7}


def test_nothing_is_known_where_nobody_said_it_while_a_service_has_the_run_and_without_one(tmp_path: Path) -> None:
    run, outbox = run_of(tmp_path, [Rank(0), Rank(1)])

    assert stages_of(run, "trainer") == {}  # its service has it
    outbox.close()
    assert stages_of(run, "trainer") == {}  # no rank said it
    assert stages_of(RunFolder(tmp_path / "exp" / "nosuch"), "trainer") == {}


def test_ranks_have_the_hosts_they_said(tmp_path: Path) -> None:
    run, outbox = run_of(
        tmp_path, [*(Rank(rank, host=f"n{rank // 2}") for rank in range(4)), Rank(0, role="generator")]
    )
    outbox.close()

    assert hosts_of(run)["trainer"] == {0: "n0", 1: "n0", 2: "n1", 3: "n1"}


def test_they_are_read_of_a_run_that_an_older_service_has_left(tmp_path: Path) -> None:
    run, outbox = run_of(tmp_path, [Rank(rank, host=f"n{rank}", topology=(("pp", rank, 2),)) for rank in range(2)])
    older = {key: json.dumps(json.loads(entry)[:-1]).encode() for key, entry in entries_of(outbox).items()}
    outbox.commit(Commit(changes=older))  # what a writer's resource says has become more from version to version
    outbox.close()

    assert hosts_of(run)["trainer"] == {0: "n0", 1: "n1"}
    assert stages_of(run, "trainer") == {0: 0, 1: 1}


def entries_of(outbox: Outbox) -> dict[str, bytes]:
    return {key: entry for key, entry in outbox.state().items() if key.startswith("who/")}
