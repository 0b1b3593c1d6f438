"""A Collector whose queue is full refuses, and ranks keep what they have: nothing is lost."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.collector.everything_once import assert_everything_is_there_once
from tests.collector.job import job
from tests.collector.pipeline import EVERYWHERE, Collector, Service, experiment_of, training
from tests.e2e.jobs import all_finished, finished, processes, until

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(900)]

SMALL_QUEUE = 1_100_000
"""Bytes; a queue has to hold one request of a rank, which is 1 MB at most."""


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[tuple[Service, Collector]]:
    """A service that is away, and a Collector that cannot keep the whole run."""
    service = Service(tmp_path, EVERYWHERE)
    collector = Collector(tmp_path, "gateway", OTEL_ML_SERVICE=service.grpc, OTEL_ML_QUEUE_BYTES=SMALL_QUEUE)
    with collector:
        yield service, collector
    service.kill()


@pytest.mark.full
def test_ranks_keep_what_a_full_queue_refuses_until_the_service_is_back(
    pipeline: tuple[Service, Collector], tmp_path: Path
) -> None:
    service, collector = pipeline
    with training(job(tmp_path, collector.endpoint, seed=0, pause=0.3), tmp_path):
        until(lambda: "sending queue is full" in collector.said)
        service.start()
    service.wait_for_the_end_of(experiment_of(tmp_path))
    service.stop()

    assert_everything_is_there_once(tmp_path, service.run_of(experiment_of(tmp_path)))


LATER = [
    pytest.param(["otel_ml_service", "recover", "--timeout", 120], id="otel-ml recover"),
    pytest.param(["tests.collector.successor"], id="the next start of the run", marks=pytest.mark.full),
]


@pytest.mark.parametrize("later", LATER)
def test_what_ranks_could_not_give_to_a_full_queue_at_their_end_is_delivered_later(
    pipeline: tuple[Service, Collector], tmp_path: Path, later: list[object]
) -> None:
    service, collector = pipeline
    commands = job(tmp_path, collector.endpoint, seed=3, pause=0.1)

    with processes(commands, tmp_path) as started:
        said = "".join(all_finished(started))
    left = list((tmp_path / "host").rglob("*.spool"))
    service.start()
    finished([sys.executable, "-m", *later], commands[0][1], tmp_path)
    service.wait_for_the_end_of(experiment_of(tmp_path))
    service.stop()

    assert "points of rank 0 are not acknowledged" in said
    assert left
    assert not list((tmp_path / "host").rglob("*.spool"))
    assert_everything_is_there_once(tmp_path, service.run_of(experiment_of(tmp_path)))
