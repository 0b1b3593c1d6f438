"""A service that is away for long, while the Collector keeps what the ranks send."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.collector.everything_once import assert_everything_is_there_once
from tests.collector.job import job
from tests.collector.pipeline import EVERYWHERE, Collector, Service, experiment_of, training
from tests.e2e.jobs import reach

pytestmark = [pytest.mark.e2e, pytest.mark.full, pytest.mark.timeout(900)]


def test_a_service_that_is_down_for_60_s_of_a_run_of_90(tmp_path: Path) -> None:
    with (
        Service(tmp_path, EVERYWHERE) as service,
        Collector(tmp_path, "gateway", OTEL_ML_SERVICE=service.grpc) as collector,
    ):
        with training(job(tmp_path, collector.endpoint, seed=2, pause=0.5, steps=180), tmp_path) as rank:
            reach(rank, 20)
            service.kill()
            reach(rank, 140)  # each step takes half a second at least
            service.start()
        service.wait_for_the_end_of(experiment_of(tmp_path))
        service.stop()

    assert_everything_is_there_once(tmp_path, service.run_of(experiment_of(tmp_path)))
