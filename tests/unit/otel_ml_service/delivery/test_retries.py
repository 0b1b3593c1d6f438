from __future__ import annotations

import asyncio
import errno
import itertools
import random

import pytest

from otel_ml_exporters import (
    Exporter,
    RestartExporterError,
    RetryableExportError,
    RunInfo,
)
from otel_ml_exporters.testing import FlakyExporter, RecordingExporter
from otel_ml_service.delivery.retries import Backoff, RetryPolicy
from otel_ml_service.delivery.stop_signal import StopSignal
from tests.unit.otel_ml_service.delivery.driver import Driver, MemorySource, seqs, steps
from tests.waiting import eventually


def test_retryable_failures_delay_and_lose_nothing(driver: Driver) -> None:
    source = MemorySource(steps(2000))
    rng = random.Random(7)
    exporter = FlakyExporter(lambda call, _: RetryableExportError("busy") if rng.random() < 0.5 else None)

    pipeline = driver.drain(exporter, source)

    assert seqs(exporter) == list(range(1, 2001))
    assert pipeline.status.lost == {}
    assert any("busy" in sentence for sentence in driver.said)


@pytest.mark.parametrize("error", [ConnectionRefusedError("no"), TimeoutError(), OSError(errno.ENOSPC, "full")])
def test_a_network_or_a_disk_that_an_exporter_does_not_hide_is_waited_for(driver: Driver, error: OSError) -> None:
    exporter = FlakyExporter(lambda call, _: error if call < 20 else None)

    pipeline = driver.drain(exporter, MemorySource(steps(3)))

    assert seqs(exporter) == [1, 2, 3]
    assert pipeline.status.lost == {}


@pytest.mark.parametrize("error", [RetryableExportError("no route to host"), SystemExit(3), asyncio.CancelledError()])
def test_an_exporter_that_cannot_start_is_started_again_until_it_can(driver: Driver, error: BaseException) -> None:
    class SlowStarter(RecordingExporter):
        def start(self, run: RunInfo) -> None:
            if len(made) < 4:
                raise error
            super().start(run)

    made: list[SlowStarter] = []

    def make() -> SlowStarter:
        made.append(SlowStarter())
        return made[-1]

    pipeline = driver.start_with(make, MemorySource(steps(5)))
    eventually(lambda: pipeline.status.delivered == 5)

    assert [seqs(exporter) for exporter in made] == [[], [], [], [1, 2, 3, 4, 5]]
    assert made[-1].run == driver.run


def test_a_backend_that_is_away_at_the_end_keeps_its_place(driver: Driver) -> None:
    exporter = FlakyExporter(lambda *_: RetryableExportError("away", retry_after=3600))
    pipeline = driver.start(exporter, MemorySource(steps(5)))
    eventually(lambda: pipeline.status.state == "retrying")

    pipeline.ask_to_stop(0.1)

    assert pipeline.join()
    assert pipeline.status.delivered == 0
    assert pipeline.status.lost == {}
    assert exporter.is_closed


def test_pauses_grow_stay_below_the_bound_and_respect_what_the_backend_asks() -> None:
    backoff = Backoff(RetryPolicy(initial_s=1.0, maximum_s=8.0), random.Random(1))
    draws = [Backoff(RetryPolicy(1.0, 8.0), random.Random(seed)) for seed in range(200)]

    rounds = [[found.pause() for found in draws] for _ in range(6)]

    assert [max(pauses) <= bound for pauses, bound in zip(rounds, (1, 2, 4, 8, 8, 8), strict=True)] == [True] * 6
    assert [max(pauses) > bound / 2 for pauses, bound in zip(rounds, (1, 2, 4, 8, 8, 8), strict=True)] == [True] * 6
    assert backoff.pause(retry_after=30.0) == 30.0


def test_as_shipped_the_first_pause_is_half_a_second_and_none_is_longer_than_a_minute() -> None:
    found = [Backoff(RetryPolicy(), random.Random(seed)) for seed in range(200)]

    rounds = [[backoff.pause() for backoff in found] for _ in range(12)]

    assert 0.4 < max(rounds[0]) <= 0.5
    assert 50 < max(rounds[-1]) <= 60
    assert RetryPolicy().surprises == 3


def test_an_exporter_that_ends_at_once_is_not_begun_anew_over_and_over(driver: Driver) -> None:
    begun = []

    def make() -> Exporter:
        begun.append(True)
        return FlakyExporter(lambda *_: RestartExporterError("gone"))

    long = RetryPolicy(initial_s=1e9, maximum_s=1e9)
    pipeline = driver.start_with(make, MemorySource(steps(1)), retry=long)
    eventually(lambda: pipeline.status.state == "retrying")

    driver.drain(RecordingExporter(), MemorySource(steps(2000)))

    assert len(begun) < 5


def test_what_an_exporter_foresees_is_logged_without_a_traceback_and_a_defect_with_one(
    driver: Driver, caplog: pytest.LogCaptureFixture
) -> None:
    errors = [RetryableExportError("away"), ZeroDivisionError("oops")]
    exporter = FlakyExporter(lambda call, _: errors[call - 1] if call <= len(errors) else None)

    driver.drain(exporter, MemorySource(steps(1)))

    said = {record.getMessage().rpartition(": ")[2]: record.exc_info for record in caplog.records}
    assert not said["away"]
    [defect] = [info for text, info in said.items() if "oops" in text]
    assert defect


def test_after_a_success_pauses_are_as_short_as_at_first() -> None:
    found = [Backoff(RetryPolicy(initial_s=1.0, maximum_s=8.0), random.Random(seed)) for seed in range(200)]
    for backoff in found:
        backoff.pause()
        backoff.pause()
        backoff.reset()

    assert 0.5 < max(backoff.pause() for backoff in found) <= 1.0


def test_an_exporter_that_could_start_at_last_has_no_problem_any_more_though_there_is_nothing_to_export(
    driver: Driver,
) -> None:
    class SlowStarter(RecordingExporter):
        is_away = True

        def start(self, run: RunInfo) -> None:
            if self.is_away:
                raise RetryableExportError("no route to host")
            super().start(run)

    exporter = SlowStarter()
    pipeline = driver.start(exporter, MemorySource())
    eventually(lambda: pipeline.status.problem is not None)

    exporter.is_away = False

    eventually(lambda: pipeline.status.state == "running")
    assert pipeline.status.problem is None


def test_being_asked_to_stop_ends_a_pause_and_the_next_try_comes_at_once(driver: Driver) -> None:
    away = RetryableExportError("away", retry_after=1000.0)
    exporter = FlakyExporter(lambda call, _: away if call == 1 else None)
    pipeline = driver.start(exporter, MemorySource(steps(3)))
    eventually(lambda: pipeline.status.state == "retrying")

    pipeline.ask_to_stop(20)
    assert pipeline.join()

    assert seqs(exporter) == [1, 2, 3]
    assert (pipeline.behind, pipeline.status.problem) == (0, None)


def test_who_is_stopping_still_waits_between_two_tries_and_gives_up_at_the_deadline(driver: Driver) -> None:
    exporter = FlakyExporter(lambda *_: RetryableExportError("away", retry_after=1000.0))
    pipeline = driver.start(exporter, MemorySource(steps(3)))
    eventually(lambda: pipeline.status.state == "retrying")

    pipeline.ask_to_stop(0.3)
    assert pipeline.join()

    assert exporter.calls <= 3
    assert (pipeline.is_stopped, pipeline.behind) == (True, 3)


def test_when_a_run_has_ended_a_backend_that_was_away_is_tried_again_soon(driver: Driver) -> None:
    exporter = FlakyExporter(lambda call, _: RetryableExportError("away") if call <= 2 else None)
    long = RetryPolicy(initial_s=1e9, maximum_s=1e9)  # a pause below two seconds is drawn once in so many tests
    pipeline = driver.start_with(lambda: exporter, MemorySource(steps(3)), retry=long)
    eventually(lambda: pipeline.status.state == "retrying")

    pipeline.hurry()

    eventually(lambda: pipeline.behind == 0)
    assert seqs(exporter) == [1, 2, 3]


def test_a_backend_that_asks_for_a_pause_gets_it_at_the_end_of_a_run_too(driver: Driver) -> None:
    exporter = FlakyExporter(lambda *_: RetryableExportError("away", retry_after=1000.0))
    pipeline = driver.start(exporter, MemorySource(steps(3)))
    eventually(lambda: pipeline.status.state == "retrying")

    pipeline.hurry()
    pipeline.ask_to_stop(0.3)
    assert pipeline.join()

    assert exporter.calls == 2  # the second time as it was asked to stop


def test_pauses_are_as_long_as_ever_where_a_backend_is_away_long_after_the_end_of_a_run() -> None:
    now = itertools.count(0.0, 20.0)  # each look at the clock is 20 s later
    signal = StopSignal(lambda: next(now))

    signal.hurry()
    signal.pause(60.0)

    assert next(now) > 60.0
