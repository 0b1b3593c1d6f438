"""What `otel-ml top` knows of a run as its records come."""

from __future__ import annotations

import pytest

from otel_ml_exporters.records import Params, Record, RunStatus, StepRecord, Table
from otel_ml_service.cli.run_board import RunBoard


def board_of(*records: Record) -> RunBoard:
    board = RunBoard()
    for record in records:
        board.add(record)
    return board


def step(at: int, values: dict[str, float], *, amendment: bool = False) -> StepRecord:
    return StepRecord(at + 1, "trainer", "step", at, 0, 1000.0 + at, values, amendment=amendment)


def findings(name: str) -> Table:
    columns = ("level", "kind", "place", "since")
    return Table(9, 1.0, name, "step", 9, columns, (("warning", "slow", "rank 2", 4), ("warning", "slow", "rank 3", 5)))


def test_the_newest_values_are_kept_without_otel_mls_own_and_without_corrections() -> None:
    board = board_of(*(step(at, {"loss": float(at), "otel_ml/lag": 1.0}) for at in range(60)),
                     step(3, {"loss": 99.0}, amendment=True), step(60, {"otel_ml/lag": 5.0}))  # fmt: skip

    assert {name: list(values) for name, values in board.recent.items()} == {
        "loss": [float(at) for at in range(12, 60)]
    }
    assert board.progress is not None
    assert board.progress.newest.step == 59
    assert "59" in board.progress.place
    assert board_of().progress is None


def test_how_far_a_run_is_follows_from_how_long_it_says_it_is() -> None:
    board = board_of(Params(1, 1.0, {"steps": 100}), *(step(at, {"loss": 1.0}) for at in range(50)))

    assert board.progress is not None
    assert board.progress.fraction == 0.5
    assert board_of(step(4, {"loss": 1.0})).progress.fraction is None  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("name", "is_one"),
    [("otel_ml/findings", True), ("generator/otel_ml/findings", True), ("my_otel_ml/findings", False), ("x", False)],
)
def test_the_first_row_of_the_newest_table_of_findings_is_shown(name: str, is_one: bool) -> None:
    assert board_of(findings(name)).finding == ("warning: rank 2 slow, since step 4" if is_one else "")


def test_the_status_is_that_of_the_last_record() -> None:
    assert board_of().status == "running"
    assert board_of(RunStatus(1, 1.0, "failed")).status == "failed"


def test_the_metrics_that_tell_most_come_first() -> None:
    board = board_of(step(0, {"loss": 1.0, "loss/max": 2.0, "time/forward": 3.0}))

    assert list(board.metrics(1)) == ["loss"]
    assert board.metrics(0) == {}


def test_shares_of_the_last_step_are_of_what_is_exposed_where_there_is_an_account() -> None:
    old, new = {"time/exposed/forward": 9.0, "time/exposed/sync": 1.0}, {"time/exposed/forward": 1.0,
        "time/exposed/sync": 3.0, "time/exposed/forward/rank": 2.0, "time/exposed/sync/rank": 0.0,
        "time/step": 8.0, "time/forward": 8.0}  # fmt: skip

    board = board_of(step(0, old), step(1, new))

    assert list(board.phases.items()) == [("sync", 0.75), ("forward", 0.25)]
    assert board.phases_of is None


def test_without_an_account_shares_are_of_means_and_else_of_the_slowest() -> None:
    means = {"time/step": 9.0, "time/step/mean": 4.0, "time/forward": 8.0, "time/forward/mean": 3.0}
    slowest = {"time/step": 4.0, "time/forward": 1.0, "time/forward/mean": 0.5}

    assert board_of(step(0, means)).phases == {"forward": 0.75}
    assert board_of(step(0, slowest)).phases == {"forward": 0.25}
    assert board_of(step(0, {"time/forward": 1.0})).phases == {}


def test_how_busy_hosts_are_is_told_by_the_last_values() -> None:
    name = "system.cpu.utilization/host.name/a"

    assert {host: use.cpu for host, use in board_of(step(0, {name: 0.1}), step(1, {name: 0.5})).hosts.items()} == {
        "a": 0.5
    }
