"""What a run keeps over a restart, and what it forgets to stay within its limit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from otel_ml_exporters.testing import RecordingExporter
from otel_ml_service.live_runs.live_run import LiveRun
from otel_ml_service.live_runs.run_settings import RunSettings
from otel_ml_service.receiver.partial_success import Rejected
from otel_ml_service.telemetry import Telemetry
from tests.strategies import START, Rank
from tests.waiting import eventually


def opened(folder: Path, **settings: Any) -> LiveRun:
    return LiveRun("exp", folder, RunSettings(**{"exporters": {}, **settings}), Telemetry(), journal="j")


def closed(run: LiveRun) -> None:
    run.pipelines.ask_to_stop(5)
    run.close()


def test_an_entry_that_was_taken_before_counts_once_after_a_restart_too(tmp_path: Path) -> None:
    run, rank = opened(tmp_path), Rank(0)
    first, second = rank.step(0, {"x": 1.0}), rank.step(1, {"x": 1.0})
    for _ in range(2):
        run.observe(1, first, START)
    run.advance(START)
    run.commit()
    received = run.status.counts.received
    closed(run)

    again = opened(tmp_path)
    again.observe(1, first, START)
    is_touched_by_the_same = again.is_touched
    again.observe(2, second, START + 1)
    again.advance(START + 1)
    again.commit()

    assert (received, run.status.counts.duplicate) == (1, 0)
    assert (is_touched_by_the_same, again.is_touched, again.is_stuck) == (False, False, False)
    assert (again.status.counts.received, again.status.counts.duplicate) == (2, 0)
    closed(again)


def test_entries_of_another_journal_are_others(tmp_path: Path) -> None:
    run, rank = opened(tmp_path), Rank(0)
    run.observe(5, rank.step(0, {"x": 1.0}), START)
    run.commit()
    closed(run)

    again = LiveRun("exp", tmp_path, RunSettings({}), Telemetry(), journal="another")
    again.observe(1, rank.step(1, {"x": 1.0}), START + 1)

    assert again.is_touched
    closed(again)


def test_what_was_rejected_is_counted_over_restarts_and_said_once(tmp_path: Path) -> None:
    scraped = Rejected("exp", "a scraper", "its metric 'a' has no value", "rejected-points")
    again = Rejected("exp", "a scraper", "its metric 'b' has no value", "rejected-points")
    run = opened(tmp_path)
    run.observe(1, [], START, rejected={scraped: 3, again: 2})
    run.commit()
    rejected, notices = run.rejected, list(run.outbox.notices)
    closed(run)

    run = opened(tmp_path)
    run.observe(2, [], START, rejected={scraped: 4})
    run.commit()

    assert (rejected, run.rejected) == (5, 9)
    assert len(notices) == 1
    assert notices[0].startswith("What a scraper sends is rejected, and lost: its metric 'a' has no value")
    assert list(run.outbox.notices) == notices
    closed(run)


def test_self_telemetry_that_is_shown_is_shown_from_the_same_record_on_after_a_restart(tmp_path: Path) -> None:
    run, rank = opened(tmp_path), Rank(0)
    for step, lost in enumerate([0.0, 5.0, 0.0]):
        run.observe(step + 1, rank.step(step, {"otel_ml/dropped": lost, "x": 1.0}, "last"), START + step)
        run.advance(START + step)
        run.commit()
    shown = run._self_telemetry.since
    closed(run)

    again = opened(tmp_path)

    assert shown != "{}"
    assert again._self_telemetry.since == shown
    closed(again)


def test_beyond_its_limit_the_oldest_records_go_but_none_that_the_quickest_exporter_lacks(tmp_path: Path) -> None:
    exporter = RecordingExporter()
    run, rank = opened(tmp_path, exporters={"one": lambda: exporter}), Rank(0)
    for step in range(10):
        run.observe(step + 1, rank.step(step, {"x": 1.0}), START + step)
        run.advance(START + step)
    run.commit()
    eventually(lambda: run.pipelines.is_delivered)
    first, last = run.outbox.first_seq, run.outbox.last_seq
    kept = last - first + 1
    run.forget_oldest(0.5, 2**20)
    run.commit()

    assert run.outbox.first_seq == first + int(kept * 0.5) + 1
    assert run.outbox.last_seq >= last
    assert [notice.partition(":")[0] for notice in run.outbox.notices] == [
        "The limit of 1 MiB (OTEL_ML_DIR_MAX) is reached"
    ]
    closed(run)


def test_of_a_run_that_nobody_has_written_nothing_is_forgotten(tmp_path: Path) -> None:
    run, rank = opened(tmp_path), Rank(0)
    run.observe(1, rank.step(0, {"x": 1.0}), START)
    run.advance(START)
    run.commit()
    first = run.outbox.first_seq
    run.forget_oldest(0.5, 2**20)
    run.commit()

    assert (run.outbox.first_seq, list(run.outbox.notices)) == (first, [])
    closed(run)


@pytest.mark.parametrize("ends", [False, True])
def test_a_run_is_over_once_it_has_ended_and_its_exporters_are_closed(tmp_path: Path, ends: bool) -> None:
    exporter = RecordingExporter()
    run, rank = opened(tmp_path, exporters={"one": lambda: exporter}), Rank(0)
    run.observe(1, [*rank.step(0, {"x": 1.0}), *(rank.bye() if ends else [])], START)
    run.advance(START)
    run.commit()
    eventually(lambda: run.pipelines.is_delivered)
    before = run.is_over
    run.finish()
    if ends:
        eventually(lambda: run.is_over or run.commit() or run.finish())

    assert (before, run.is_over, run.is_ending, exporter.is_closed) == (False, ends, False, ends)
    assert (tmp_path / "state" / "delivery.json").exists() == ends
    closed(run)
    assert not (tmp_path / "state" / "delivery.json").exists()
