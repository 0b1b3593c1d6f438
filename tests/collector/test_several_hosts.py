"""Two hosts that share a folder are one run without any configuration (network namespaces stand for the hosts)."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.collector.pipeline import experiment_of
from tests.collector.test_every_hop import assert_everything_is_there_once
from tests.e2e.jobs import environment, finished, the_run_in

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(200)]

HOSTS = Path(__file__).with_name("two_hosts.sh")


def test_ranks_of_two_hosts_meet_in_the_shared_folder(tmp_path: Path) -> None:
    (tmp_path / "written").mkdir()
    env = environment(
        OTEL_ML_EXPERIMENT_ID=experiment_of(tmp_path), OTEL_SERVICE_NAME="trainer", OTEL_ML_EXPORTERS="jsonl",
        OTEL_ML_DIR=tmp_path / "runs",
    )  # fmt: skip
    namespaces = ["unshare", "--user", "--map-root-user", "--net", "--mount", "--fork"]

    said = finished(
        [*namespaces, HOSTS, tmp_path, sys.executable, "-m", "tests.e2e.rank", 7, tmp_path / "written", 30, 0.05],
        env, tmp_path,
    )  # fmt: skip

    assert "do not share" not in said
    assert_everything_is_there_once(tmp_path, the_run_in(tmp_path / "runs"))
