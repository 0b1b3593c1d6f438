"""Ranks → Collector → service, killed with -9 in mid-run: every value of the oracle is in every backend, once."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.collector.everything_once import assert_everything_is_there_once
from tests.collector.job import STEPS, job
from tests.collector.pipeline import EVERYWHERE, Collector, Service, experiment_of, training
from tests.collector.seeds import ten_seeds
from tests.e2e.jobs import reach

pytestmark = pytest.mark.timeout(900)


def moments(seed: int, count: int) -> list[int]:
    """Return the steps at which something happens."""
    return sorted(random.Random(seed).sample(range(3, STEPS - 10), k=count))


@ten_seeds
def test_a_collector_killed_in_mid_run(tmp_path: Path, seed: int) -> None:
    with (
        Service(tmp_path, EVERYWHERE) as service,
        Collector(tmp_path, "gateway", OTEL_ML_SERVICE=service.grpc) as collector,
    ):
        with training(job(tmp_path, collector.endpoint, seed=seed), tmp_path) as rank:
            for moment in moments(seed, 2):
                reach(rank, moment)
                collector.kill()
                collector.start()
        service.wait_for_the_end_of(experiment_of(tmp_path))
        service.stop()

    assert_everything_is_there_once(tmp_path, service.run_of(experiment_of(tmp_path)))


@ten_seeds
def test_a_service_killed_and_down_for_most_of_the_run(tmp_path: Path, seed: int) -> None:
    with (
        Service(tmp_path, EVERYWHERE) as service,
        Collector(tmp_path, "gateway", OTEL_ML_SERVICE=service.grpc) as collector,
    ):
        with training(job(tmp_path, collector.endpoint, seed=seed), tmp_path) as rank:
            reach(rank, moments(seed, 1)[0] // 3)
            service.kill()  # the Collector keeps what nobody takes
        service.start()
        service.wait_for_the_end_of(experiment_of(tmp_path))
        service.stop()

    assert_everything_is_there_once(tmp_path, service.run_of(experiment_of(tmp_path)))


@pytest.mark.e2e
@pytest.mark.full
def test_both_killed_in_turn_and_started_again(tmp_path: Path) -> None:
    with (
        Service(tmp_path, EVERYWHERE) as service,
        Collector(tmp_path, "gateway", OTEL_ML_SERVICE=service.grpc) as collector,
    ):
        with training(job(tmp_path, collector.endpoint, seed=11, pause=0.2), tmp_path) as rank:
            for program, moment in ((collector, 10), (service, 25), (collector, 40)):
                reach(rank, moment)
                program.kill()
                program.start()
        service.wait_for_the_end_of(experiment_of(tmp_path))
        service.stop()

    assert_everything_is_there_once(tmp_path, service.run_of(experiment_of(tmp_path)))
