"""Several services behind one gateway: each experiment is one run, in one of them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.collector.everything_once import assert_everything_is_there_once
from tests.collector.pipeline import EVERYWHERE, Collector, Service, experiment_of, ranks, training
from tests.e2e.jobs import reach, until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

EXPERIMENTS = ("a1", "b2", "c3", "d4")


@pytest.mark.full
def test_four_experiments_on_two_services_that_are_killed_one_after_the_other(tmp_path: Path) -> None:
    folders = {name: tmp_path / name for name in EXPERIMENTS}
    host = tmp_path / "host"
    host.mkdir(mode=0o700)
    with ExitStack() as stack:
        services = [stack.enter_context(Service(tmp_path, EVERYWHERE, name=f"service-{n}")) for n in (1, 2)]
        addresses = {f"OTEL_ML_SERVICE_{n}": service.grpc for n, service in enumerate(services, 1)}
        gateway = stack.enter_context(Collector(tmp_path, "scale-out", **addresses))
        jobs = []
        for seed, folder in enumerate(folders.values()):
            folder.mkdir()
            jobs += ranks(
                folder, gateway.endpoint, seed=seed, roles={"trainer": 2}, steps=40, pause=0.05,
                OTEL_ML_EXPERIMENT_ID=experiment_of(folder), XDG_RUNTIME_DIR=host,
            )  # fmt: skip
        with training(jobs, tmp_path) as rank:
            for service, moment in zip(services, (10, 25), strict=True):
                reach(rank, moment)
                service.kill()
                service.start()
        homes = until(lambda: homes_of(services, folders), seconds=180)
        for service in services:
            service.stop()

    assert sorted(len(found) for found in homes.values()) == [1] * len(EXPERIMENTS)
    for experiment, folder in folders.items():
        assert_everything_is_there_once(folder, homes[experiment][0].run_of(experiment_of(folder)))


def homes_of(services: list[Service], folders: Mapping[str, Path]) -> dict[str, list[Service]]:
    """Return experiment → the services that know it, once everywhere all of them have ended."""
    ids = {name: experiment_of(folder) for name, folder in folders.items()}
    homes = {name: [service for service in services if service.account(ids[name])] for name in folders}
    ended = all(found and all(service.ended(ids[name]) for service in found) for name, found in homes.items())
    return homes if ended else {}
