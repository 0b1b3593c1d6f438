"""A job on two hosts that share no folder: each host has a run of its own, and is told how to have one run."""

from __future__ import annotations

import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from otel_ml.wire.rendezvous import path_part
from tests.e2e.jobs import Scalars, all_finished, environment, finished, processes, scalars_in, the_run_in
from tests.e2e.oracle import expected
from tests.e2e.rank import written_in

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

ID = "two-hosts"
HOSTS: Sequence[Sequence[int]] = ((0,), (1, 2))
"""The ranks of each."""
STEPS, PAUSE_S = 45, 1.0
"""Longer than the 30 s for which the second host looks for the first one, which no setting shortens."""


@dataclass(frozen=True)
class Host:
    folder: Path
    said: str

    @property
    def run(self) -> Path:
        return the_run_in(self.folder / "runs")

    @property
    def wanted(self) -> Scalars:
        return expected(written_in(self.folder / "written"))

    @property
    def shown(self) -> Scalars:
        return {name: values for name, values in scalars_in("jsonl", self.run).items() if "otel_ml/" not in name}


def variables(disk: Path, host: int, local_rank: int) -> dict[str, object]:
    """Return what torchrun and the user set on a host, for one of its ranks."""
    return {
        "TORCHELASTIC_RUN_ID": "none", "RANK": HOSTS[host][local_rank], "WORLD_SIZE": 3, "LOCAL_RANK": local_rank,
        "GROUP_RANK": host, "GROUP_WORLD_SIZE": 2, "MASTER_ADDR": "first.example",
        "OTEL_ML_EXPERIMENT_ID": ID, "OTEL_ML_EXPORTERS": "jsonl", "OTEL_SERVICE_NAME": "trainer",
        "OTEL_ML_DIR": disk / "runs", "XDG_RUNTIME_DIR": disk / "runtime",
        "MEET": 1,
    }  # fmt: skip


def disk_of(folder: Path, host: int) -> Path:
    """Make the folders that only this host has."""
    disk = folder / f"host-{host}"
    (disk / "written").mkdir(parents=True)
    (disk / "runtime").mkdir(mode=0o700)
    return disk


def rank_program(disk: Path, steps: int, pause: float) -> list[object]:
    return [sys.executable, "-m", "tests.e2e.rank", 7, disk / "written", steps, pause]


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> list[Host]:
    """What a job leaves whose launcher says two hosts, each with a disk and a runtime folder of its own."""
    folder = tmp_path_factory.mktemp("hosts")
    disks = [disk_of(folder, host) for host in range(len(HOSTS))]
    commands = [
        (rank_program(disks[host], STEPS, PAUSE_S), environment(**variables(disks[host], host, local_rank)))
        for host, ranks in enumerate(HOSTS)
        for local_rank in range(len(ranks))
    ]
    with processes(commands, folder) as started:
        first, *others = all_finished(started)
    return [Host(disks[0], first), Host(disks[1], "\n".join(others))]


def test_each_host_has_one_run_named_after_it(hosts: list[Host]) -> None:
    assert [host.run.name for host in hosts] == [ID, f"{ID}-{path_part(socket.gethostname())}"]


@pytest.mark.parametrize("host", range(len(HOSTS)))
def test_the_run_of_a_host_has_everything_its_ranks_recorded_from_the_first_step(hosts: list[Host], host: int) -> None:
    shown, wanted = hosts[host].shown, hosts[host].wanted

    assert sorted(shown) == sorted(wanted)
    for name, values in wanted.items():
        relative = 0.006 if "quantile/" in name else 1e-12
        assert shown[name] == pytest.approx(values, rel=relative, abs=0, nan_ok=True), name


def test_the_second_host_says_once_what_to_start_and_what_to_set_for_one_run(hosts: list[Host]) -> None:
    first, second = (host.said for host in hosts)

    assert "do not share" not in first
    assert second.count("do not share") == 1
    assert "start on first.example: OTEL_ML_TOKEN=<secret> OTEL_ML_LISTEN_HTTP=0.0.0.0:4318 otel-ml serve" in second
    assert "OTEL_ML_TOKEN=<secret> OTEL_EXPORTER_OTLP_ENDPOINT=http://first.example:4318" in second


def test_a_job_that_ends_before_the_second_host_gave_up_looking_loses_nothing(tmp_path: Path) -> None:
    disk = disk_of(tmp_path, 1)
    env = environment(**variables(disk, 1, 0))

    said = finished(rank_program(disk, 5, 0.0), env, tmp_path)
    assert "they are kept on this host. The next start of this run sends them, or: otel-ml recover" in said
    finished([sys.executable, "-m", "otel_ml_service", "recover"], env, tmp_path)

    recovered = Host(disk, said)
    assert recovered.shown.keys() == recovered.wanted.keys()
    assert recovered.shown["plain/count"] == recovered.wanted["plain/count"]
