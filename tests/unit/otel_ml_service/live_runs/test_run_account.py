"""What a run says of itself over HTTP; the sums are worked out by hand."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from otel_ml_exporters.errors import RetryableExportError
from otel_ml_exporters.testing import FlakyExporter, RecordingExporter
from otel_ml_service.delivery.retries import RetryPolicy
from otel_ml_service.live_runs.live_run import LiveRun
from otel_ml_service.live_runs.run_account import _on_its_way, account
from otel_ml_service.live_runs.run_settings import RunSettings
from otel_ml_service.live_runs.self_telemetry import run_measures, self_points
from otel_ml_service.storage.database import StorageError
from otel_ml_service.telemetry import Telemetry
from tests.strategies import START, Rank
from tests.waiting import eventually

RUNS: list[LiveRun] = []


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    for run in RUNS:
        run.pipelines.ask_to_stop(0)
        run.close()
    RUNS.clear()


def a_run(folder: Path, **settings: Any) -> LiveRun:
    RUNS.append(LiveRun("exp", folder, RunSettings(**{"exporters": {}, **settings}), Telemetry(), journal="j"))
    return RUNS[-1]


def stands(run: LiveRun, **status: Any) -> None:
    """Have the engine say so of the run."""
    counts = run.status.counts._replace(open=status.pop("open", 0), waiting=status.pop("waiting", 0))
    run.status = run.status._replace(counts=counts, **status)


def test_of_a_run_that_goes_on_everything_is_delivered_lost_or_on_its_way(tmp_path: Path) -> None:
    run = a_run(tmp_path, exporters={"one": RecordingExporter}, unavailable={"two": "its package is missing."})
    stands(
        run, state="running", recorded=1_000, superseded=100, unreceived=30, lost={"spool_full": 200, "bad_value": 7},
        open_steps=4, open=15, waiting=5, overhead_s=0.5, duration_s=60.0, writers=3, writers_live=2, last_seq=9,
    )  # fmt: skip

    said = account(run, 6)

    # 1,000 - 100 - 200 are neither recorded again nor lost; of these 30 + 15 + 5 have not been written.
    assert (said["recorded"], said["superseded"], said["on_its_way"], said["delivered"]) == (1_000, 100, 50, 650)
    assert said["lost"] == {"spool_full": 200, "bad_value": 7}
    assert said["pending"] == 4 + 6 + 30
    assert (said["unreceived"], said["files"], said["problem"], said["told"]) == (30, 0, None, None)
    assert (said["writers"], said["writers_live"], said["overhead_s"], said["duration_s"]) == (3, 2, 0.5, 60.0)
    assert (said["id"], said["experiment"], said["dir"], said["status"]) == ("exp", "default", str(tmp_path), "running")
    assert (said["starting"], said["last_seq"], said["notices"], said["findings"]) == (False, 0, [], [])
    one = {"url": None, "delivered_seq": 0, "pending": 0, "state": "stopped", "problem": None, "lost": {}}
    assert said["exporters"] == {
        "one": one,
        "two": {**one, "state": "unavailable", "problem": "its package is missing."},
    }


def test_without_exporters_nothing_is_delivered(tmp_path: Path) -> None:
    run = a_run(tmp_path)
    stands(run, recorded=10)

    assert (account(run, 0)["delivered"], account(run, 0)["on_its_way"]) == (0, 0)


def test_more_lost_than_recorded_is_nothing_delivered(tmp_path: Path) -> None:
    run = a_run(tmp_path, exporters={"one": RecordingExporter})
    stands(run, recorded=10, lost={"never_arrived": 11})

    assert (account(run, 0)["delivered"], account(run, 0)["on_its_way"]) == (0, 0)


def test_what_a_backend_is_behind_and_has_lost_is_said(tmp_path: Path) -> None:
    exporter = FlakyExporter(lambda *_: RetryableExportError("away"))
    away = RetryPolicy(initial_s=1e9, maximum_s=1e9)
    run, rank = a_run(tmp_path, exporters={"away": lambda: exporter}, retry=away), Rank(0)
    for step in range(4):
        run.observe(step + 1, rank.step(step, {"x": 1.0}), START + step)
        run.advance(START + step)
    run.commit()
    eventually(lambda: run.pipelines.exporters["away"].problem)
    stands(run, recorded=40, last_seq=run.outbox.last_seq)

    said = account(run, 0)

    last = run.outbox.last_seq
    assert (said["last_seq"], said["exporters"]["away"]["pending"], said["pending"]) == (last, last, last)
    assert (said["delivered"], said["on_its_way"]) == (0, 40)
    assert "away" in said["exporters"]["away"]["problem"]
    lag = {name: value for name, labels, value in run_measures(run) if ("exporter", "away") in labels}
    assert lag == {"delivered": 0, "lag": last, "lost": 0}


def test_a_run_that_has_ended_waits_for_what_is_not_on_the_disk_yet(tmp_path: Path) -> None:
    run = a_run(tmp_path)
    stands(run, state="finished")
    run.outbox.set_mark("one", run.outbox.mark("one"))

    ended = account(run, 0)["pending"]
    run.commit()
    stored = account(run, 0)["pending"]

    assert (ended, stored) == (1, 0)


def test_what_cannot_be_stored_is_the_runs_problem_and_the_notices_told_are_counted(tmp_path: Path) -> None:
    run = a_run(tmp_path)
    run.say("storage", "Something happened.")
    run.commit()
    run.printed = 1
    run.trouble.note(StorageError("the disk is full."))

    said = account(run, 0)

    assert (said["problem"], said["told"], len(said["notices"])) == (run.trouble.text, 1, 1)
    assert run.trouble.text.startswith("the disk is full.")


@pytest.mark.parametrize(
    ("behind", "last_seq", "on_its_way"),
    [(0, 10, 10), (4, 10, 34), (10, 10, 70), (12, 10, 70), (3, 0, 10), (1, 60, 11)],
)
def test_of_records_that_are_to_be_written_their_share_of_the_values_is_on_its_way(
    tmp_path: Path, behind: int, last_seq: int, on_its_way: int
) -> None:
    run = a_run(tmp_path)
    stands(run, unreceived=5, open=4, waiting=1, last_seq=last_seq)

    # 10 of 70 have not been written to any record; of 60 the records that are behind hold their share.
    assert _on_its_way(run.status, behind, 70) == on_its_way


def test_more_on_its_way_than_there_is_is_all_there_is(tmp_path: Path) -> None:
    run = a_run(tmp_path)
    stands(run, unreceived=50, last_seq=10)

    assert _on_its_way(run.status, 0, 20) == 20


class TestSelfTelemetry:
    def test_everything_that_is_known_of_a_run_bears_its_id(self, tmp_path: Path) -> None:
        run = a_run(tmp_path)
        counts = run.status.counts._replace(received=1, duplicate=2, too_late=3, amended=4)
        run.status = run.status._replace(
            counts=counts, ranks=run.status.ranks._replace(heard=5, expected=6), recorded=7, superseded=8, unreceived=9,
            open_steps=10, overhead_s=11.0, lost={"disk": 12},
        )  # fmt: skip

        found = {name: (dict(labels), value) for name, labels, value in run_measures(run)}

        of_run = {"run": "exp"}
        assert found == {
            "received": (of_run, 1), "duplicate": (of_run, 2), "too_late": (of_run, 3), "amended": (of_run, 4),
            "ranks": (of_run, 5), "ranks_expected": (of_run, 6), "recorded": (of_run, 7), "superseded": (of_run, 8),
            "unreceived": (of_run, 9), "open_steps": (of_run, 10), "overhead_s": (of_run, 11.0),
            "dropped": ({"reason": "disk", "run": "exp"}, 12),
        }  # fmt: skip

    def test_only_what_the_service_alone_knows_is_recorded_by_it(self, tmp_path: Path) -> None:
        run = a_run(tmp_path)
        before = self_points(run, START)
        run.rejected = 3

        (point,) = self_points(run, START)

        assert before == []
        (series,) = point.partials.series
        assert (series.name, series.attributes, series.kind) == ("otel_ml/rejected", (), "order")
        assert point.partials.stats[0, :4].tolist() == [1.0, 3.0, 3.0, 3.0]
        assert point.partials.times.tolist() == [[int(START * 1e9)] * 2]
        assert (point.kind, point.axis, point.step, str(point.reduction)) == ("gauge", None, None, "last")
        assert (point.writer.experiment, point.writer.role) == ("exp", "")
