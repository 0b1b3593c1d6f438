"""A network between Collector and service that is slow, loses, doubles and reorders."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.collector.everything_once import assert_everything_is_there_once
from tests.collector.job import job
from tests.collector.pipeline import EVERYWHERE, Collector, Service, experiment_of, training
from tests.collector.seeds import ten_seeds
from tests.fakes.unreliable_network import UnreliableNetwork

pytestmark = pytest.mark.timeout(900)


@pytest.mark.full
@pytest.mark.e2e
def test_a_slow_service_and_ten_consumers_that_overtake_each_other(tmp_path: Path) -> None:
    through(tmp_path, seed=0, delay_s=1.0)


@ten_seeds
def test_a_network_that_loses_a_third_doubles_a_tenth_and_reorders(tmp_path: Path, seed: int) -> None:
    counts = through(tmp_path, seed=seed, lost=1 / 3, doubled=0.1, delay_s=0.05)

    assert counts["refused"] + counts["answer lost"] > 0


def through(folder: Path, *, seed: int, **faults: float) -> dict[str, int]:
    """Run the job through such a network, compare, and return what the network did."""
    experiment = experiment_of(folder)
    with ExitStack() as stack:
        service = stack.enter_context(Service(folder, EVERYWHERE))
        network = stack.enter_context(UnreliableNetwork(service.grpc, seed=seed, **faults))
        collector = stack.enter_context(Collector(folder, "gateway", OTEL_ML_SERVICE=network.address))
        with training(job(folder, collector.endpoint, seed=seed), folder):
            pass
        service.wait_for_the_end_of(experiment)
        service.stop()
    assert_everything_is_there_once(folder, service.run_of(experiment))
    return network.counts
