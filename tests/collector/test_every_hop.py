"""Ranks → Collector → service, with every hop killed, slow or lossy: every value of the oracle is there, once."""

from __future__ import annotations

import random
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.collector.everything_once import assert_everything_is_there_once
from tests.collector.pipeline import EVERYWHERE, Collector, Service, experiment_of, ranks
from tests.e2e.jobs import all_finished, processes, reach
from tests.fakes.unreliable_network import UnreliableNetwork

pytestmark = pytest.mark.timeout(400)

ROLES = {"trainer": 4, "generator": 2}
STEPS, PAUSE = 60, 0.05

ten_seeds = pytest.mark.parametrize(
    "seed", [pytest.param(0, marks=pytest.mark.e2e), *(pytest.param(n, marks=pytest.mark.chaos) for n in range(1, 10))]
)


def job(folder: Path, endpoint: str, seed: int, pause: float = PAUSE) -> list[tuple[list[object], dict[str, str]]]:
    return ranks(
        folder, endpoint, seed=seed, roles=ROLES, steps=STEPS, pause=pause,
        OTEL_ML_EXPERIMENT_ID=experiment_of(folder), OTEL_ML_FLUSH_INTERVAL=200,
    )  # fmt: skip


def moments(seed: int, count: int) -> list[int]:
    """Return the steps at which something happens."""
    return sorted(random.Random(seed).sample(range(3, STEPS - 10), k=count))


@ten_seeds
def test_a_collector_killed_with_kill_9_in_mid_run(tmp_path: Path, seed: int) -> None:
    with (
        Service(tmp_path, EVERYWHERE) as service,
        Collector(tmp_path, "gateway", OTEL_ML_SERVICE=service.grpc) as collector,
    ):
        with processes(job(tmp_path, collector.endpoint, seed), tmp_path) as started:
            for moment in moments(seed, 2):
                reach(started[0], moment)
                collector.kill()
                collector.start()
            all_finished(started)
        service.wait_for_the_end_of(experiment_of(tmp_path))
        service.stop()

    assert_everything_is_there_once(tmp_path, service.run_of(experiment_of(tmp_path)))


@ten_seeds
def test_a_service_killed_with_kill_9_and_down_for_most_of_the_run(tmp_path: Path, seed: int) -> None:
    with (
        Service(tmp_path, EVERYWHERE) as service,
        Collector(tmp_path, "gateway", OTEL_ML_SERVICE=service.grpc) as collector,
    ):
        with processes(job(tmp_path, collector.endpoint, seed), tmp_path) as started:
            reach(started[0], moments(seed, 1)[0] // 3)
            service.kill()
            all_finished(started)  # the Collector keeps what nobody takes
        service.start()
        service.wait_for_the_end_of(experiment_of(tmp_path))
        service.stop()

    assert_everything_is_there_once(tmp_path, service.run_of(experiment_of(tmp_path)))


@pytest.mark.e2e
def test_a_queue_that_is_full_holds_the_ranks_data_back_and_drops_nothing(tmp_path: Path) -> None:
    with ExitStack() as stack:
        service = stack.enter_context(Service(tmp_path, EVERYWHERE))
        service.kill()
        collector = stack.enter_context(
            Collector(tmp_path, "gateway", OTEL_ML_SERVICE=service.grpc, OTEL_ML_QUEUE_BYTES=1_100_000)
        )
        with processes(job(tmp_path, collector.endpoint, seed=0, pause=0.5), tmp_path) as started:
            reach(started[0], STEPS * 2 // 3)
            assert "sending queue is full" in collector.said
            service.start()  # with time left: what the ranks still have at their end, they keep for the next start
            all_finished(started)
        service.wait_for_the_end_of(experiment_of(tmp_path))
        service.stop()

    assert_everything_is_there_once(tmp_path, service.run_of(experiment_of(tmp_path)))


@pytest.mark.e2e
def test_a_slow_service_and_ten_consumers_that_overtake_each_other(tmp_path: Path) -> None:
    with ExitStack() as stack:
        service = stack.enter_context(Service(tmp_path, EVERYWHERE))
        network = stack.enter_context(UnreliableNetwork(service.grpc, seed=0, delay_s=1.0))
        collector = stack.enter_context(Collector(tmp_path, "gateway", OTEL_ML_SERVICE=network.address))
        with processes(job(tmp_path, collector.endpoint, seed=0), tmp_path) as started:
            all_finished(started)
        service.wait_for_the_end_of(experiment_of(tmp_path))
        service.stop()

    assert_everything_is_there_once(tmp_path, service.run_of(experiment_of(tmp_path)))


@ten_seeds
def test_a_network_that_loses_a_third_doubles_a_tenth_and_reorders(tmp_path: Path, seed: int) -> None:
    with ExitStack() as stack:
        service = stack.enter_context(Service(tmp_path, EVERYWHERE))
        network = stack.enter_context(UnreliableNetwork(service.grpc, seed=seed, lost=1 / 3, doubled=0.1, delay_s=0.05))
        collector = stack.enter_context(Collector(tmp_path, "gateway", OTEL_ML_SERVICE=network.address))
        with processes(job(tmp_path, collector.endpoint, seed), tmp_path) as started:
            all_finished(started)
        service.wait_for_the_end_of(experiment_of(tmp_path))
        service.stop()

    assert network.counts["refused"] + network.counts["answer lost"] > 0
    assert_everything_is_there_once(tmp_path, service.run_of(experiment_of(tmp_path)))


@pytest.mark.e2e
@pytest.mark.timeout(600)
def test_every_backend_shows_the_same_after_both_the_collector_and_the_service_were_killed(tmp_path: Path) -> None:
    with (
        Service(tmp_path, EVERYWHERE) as service,
        Collector(tmp_path, "gateway", OTEL_ML_SERVICE=service.grpc) as collector,
    ):
        with processes(job(tmp_path, collector.endpoint, seed=11, pause=0.2), tmp_path) as started:
            for program, moment in ((collector, 10), (service, 25), (collector, 40)):
                reach(started[0], moment)
                program.kill()
                program.start()
            all_finished(started)
        service.wait_for_the_end_of(experiment_of(tmp_path), seconds=240)
        service.stop()

    assert_everything_is_there_once(tmp_path, service.run_of(experiment_of(tmp_path)))
