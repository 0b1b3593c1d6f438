"""Jobs on several hosts are one run: over a shared folder, and through agents and a gateway (see `hosts.py`)."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.collector.cluster import HOSTS
from tests.collector.everything_once import assert_everything_is_there_once
from tests.collector.hosts import beside_hosts
from tests.collector.pipeline import experiment_of
from tests.e2e.jobs import environment, finished, the_run_in

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]


def test_ranks_of_two_hosts_meet_in_the_shared_folder_without_any_configuration(tmp_path: Path) -> None:
    (tmp_path / "written").mkdir()
    env = environment(
        OTEL_ML_EXPERIMENT_ID=experiment_of(tmp_path), OTEL_SERVICE_NAME="trainer", OTEL_ML_EXPORTERS="jsonl",
        OTEL_ML_DIR=tmp_path / "runs",
    )  # fmt: skip
    rank = [sys.executable, "-m", "tests.e2e.rank", 7, tmp_path / "written", 30, 0.05]

    said = finished(beside_hosts(2, sys.executable, "-m", "tests.collector.two_hosts", tmp_path, *rank), env, tmp_path)

    assert "do not share" not in said
    assert_everything_is_there_once(tmp_path, the_run_in(tmp_path / "runs"), ["jsonl"])


def test_agents_on_two_nodes_a_gateway_and_a_service_on_their_own_hosts_lose_nothing_when_hops_die(
    tmp_path: Path,
) -> None:
    experiment = experiment_of(tmp_path)

    finished(
        beside_hosts(HOSTS, sys.executable, "-m", "tests.collector.cluster", tmp_path, experiment),
        environment(), tmp_path,
    )  # fmt: skip

    [run] = (tmp_path / "service-runs").glob(f"*/{experiment}")
    assert run.parent.name == "oracle"
    assert_everything_is_there_once(tmp_path, run)
