"""Where the folders of runs are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from otel_ml_service.aggregation.observation import Writer
from otel_ml_service.live_runs import run_registry as book_module
from otel_ml_service.live_runs.live_run import LiveRun
from otel_ml_service.live_runs.run_registry import RunRegistry
from otel_ml_service.live_runs.run_settings import RunSettings
from otel_ml_service.telemetry import Telemetry
from tests.strategies import START, Rank, cumulative, writer

ENGINE = writer(0, role="vllm", instance="engine")
RANK = writer(0, experiment_name="digits")


@pytest.fixture
def book(tmp_path: Path) -> Iterator[RunRegistry]:
    book = RunRegistry(tmp_path, RunSettings({}), Telemetry(), journal="j")
    yield book
    for run in book:
        book.put_away(run)


def scraped(book: RunRegistry, engine: Writer = ENGINE) -> None:
    """Let the agent be heard first: a rate needs two points."""
    points = [cumulative(engine, "tokens", total, start=START, time=START + total) for total in (1.0, 2.0)]
    book.of(engine).observe(1, points, START)


def test_a_run_that_a_scraper_is_heard_of_first_lies_where_training_says(book: RunRegistry, tmp_path: Path) -> None:
    scraped(book)
    assert book.of(ENGINE).folder == tmp_path / "default" / "exp"

    run = book.of(RANK)

    assert run.folder == tmp_path / "digits" / "exp"
    assert not (tmp_path / "default" / "exp").exists()
    assert book.of(ENGINE) is run
    assert [each.experiment for each in book] == ["exp"]


def test_what_had_been_heard_before_the_run_got_its_name_is_still_there(book: RunRegistry) -> None:
    scraped(book)

    run = book.of(RANK)
    run.observe(2, Rank(0, experiment_name="digits").step(0, {"loss": 1.0}), START)
    run.advance(START)
    run.commit()

    assert run.status.counts.received == 3
    assert run.info.experiment == "digits"


def scraped_for(book: RunRegistry, seconds: int) -> LiveRun:
    """Let an agent be heard every five seconds, and rows close."""
    for entry, second in enumerate(range(0, seconds, 5), start=1):
        point = cumulative(ENGINE, "tokens", float(second), start=START, time=START + second)
        run = book.of(ENGINE)
        run.observe(entry, [point], START + second)
        run.advance(START + second)
        run.commit()
    assert run.outbox.last_seq
    return run


def test_rows_of_a_scraper_wait_for_the_name_of_the_run(book: RunRegistry, tmp_path: Path) -> None:
    rows = scraped_for(book, 40).outbox.last_seq

    named = book.of(RANK)

    assert named.folder == tmp_path / "digits" / "exp"
    assert named.outbox.last_seq == rows


def test_rows_of_a_scraper_wait_no_longer_than_a_minute(book: RunRegistry, tmp_path: Path) -> None:
    scraped_for(book, 80)

    assert book.of(RANK).folder == tmp_path / "default" / "exp"


def test_a_run_that_was_given_the_name_of_the_default_folder_stays_there(book: RunRegistry, tmp_path: Path) -> None:
    book.of(replace(RANK, experiment_name="default"))

    assert book.of(replace(RANK, instance="other")).folder == tmp_path / "default" / "exp"


def test_a_run_that_backends_have_something_of_stays_where_it_is(book: RunRegistry, tmp_path: Path) -> None:
    unnamed = Rank(0)
    run = book.of(unnamed.writer)
    run.observe(1, unnamed.step(0, {"loss": 1.0}), START)
    run.advance(START)
    run.commit()

    assert book.of(replace(RANK, instance="later")).folder == tmp_path / "default" / "exp"


def test_the_bound_counts_every_run_that_a_request_brings_and_those_on_their_way(
    book: RunRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(book_module, "MAX_RUNS", 3)
    book.of(replace(RANK, experiment="open"))

    assert not book.has_capacity(["a", "b", "c"])
    assert book.has_capacity(["open", "a"])  # promised, and not open yet
    assert book.has_capacity(["a"])
    assert not book.has_capacity(["b", "c"])
    assert book.has_capacity(["b"])
    assert not book.has_capacity(["c"])
    book.withdraw(["b"])  # it could not be stored
    assert book.has_capacity(["c"])
    book.of(replace(RANK, experiment="c"))
    assert not book.has_capacity(["d"])
    book.forget(book.of(replace(RANK, experiment="open")))
    assert book.has_capacity(["d"])


def test_it_is_crowded_from_the_first_run_that_found_no_room_until_one_finds_it(
    book: RunRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(book_module, "MAX_RUNS", 1)

    assert not book.is_crowded
    assert not book.has_capacity(["a", "b"])
    assert book.is_crowded
    assert book.has_capacity(["a"])
    assert not book.is_crowded
