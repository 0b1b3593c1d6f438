"""Nine real processes record random keys under every reduction; every backend shows what the oracle computes."""

from __future__ import annotations

import math
import sqlite3
import struct
import sys
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest

from tests.e2e.jobs import (
    BACKENDS,
    Scalars,
    all_finished,
    environment,
    histograms_in,
    processes,
    runs_in,
    scalars_in,
    the_run_in,
)
from tests.e2e.oracle import counts_in_bins, expected, expected_histograms
from tests.e2e.rank import written_in

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

ROLES = {"trainer": 6, "generator": 2, "critic": 1}


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run the random job once for all tests of this file."""
    folder = tmp_path_factory.mktemp("job")
    (folder / "written").mkdir()
    shared = {
        "OTEL_ML_EXPERIMENT_ID": "oracle-job",
        "OTEL_ML_EXPORTERS": ",".join(BACKENDS),
        "OTEL_ML_DIR": folder / "runs",
        "WANDB_MODE": "offline",
    }
    commands = [
        (
            [sys.executable, "-m", "tests.e2e.rank", 1234, folder / "written"],
            environment(OTEL_SERVICE_NAME=role, RANK=rank, LOCAL_RANK=rank, WORLD_SIZE=size, **shared),
        )
        for role, size in ROLES.items()
        for rank in range(size)
    ]
    with processes(commands, folder) as started:
        all_finished(started)
    return folder


@pytest.fixture(scope="module")
def jsonl(job: Path) -> Scalars:
    return scalars_in("jsonl", the_run_in(job / "runs"))


def users(shown: Scalars) -> Scalars:
    """Leave out what otel_ml measures about itself."""
    return {name: values for name, values in shown.items() if "otel_ml/" not in name}


def test_a_rank_may_record_any_key_at_any_step_or_none(job: Path, jsonl: Scalars) -> None:
    wanted = expected(written_in(job / "written"))

    assert sorted(users(jsonl)) == sorted(wanted)
    for name, values in wanted.items():
        # The nearest-rank quantile of a scale-6 exponential histogram is off by at most 0.6 % (docs/protocol.md §2.8).
        relative = 0.006 if "quantile/" in name else 1e-12
        assert jsonl[name] == pytest.approx(values, rel=relative, abs=0, nan_ok=True), name


def test_no_step_was_closed_by_a_time_out_and_nothing_was_amended(jsonl: Scalars) -> None:
    said = {
        name: values for name, values in jsonl.items() if name.endswith(("otel_ml/writers_missing", "otel_ml/amended"))
    }

    assert not {name: values for name, values in said.items() if any(values.values())}


@pytest.mark.feature("N1", "better", "one run in every backend, from every process and role")
@pytest.mark.feature("F8", "better", "actors of any role, also started by hand, are one run")
@pytest.mark.feature("R1", "better", "`OTEL_ML_EXPORTERS=tensorboard,wandb`: any number at once")
def test_one_job_is_one_run_in_every_backend_however_many_processes_and_roles_it_has(job: Path) -> None:
    runs = job / "runs"

    assert len(runs_in(runs)) == 1
    assert len({path.parent for path in runs.rglob("events.out.tfevents.*")} - sub_runs(runs)) == 1
    assert len({path.name.rpartition("-")[2] for path in runs.rglob("offline-run-*")}) == 1
    with closing(sqlite3.connect(runs / "mlflow.db")) as store:
        assert store.execute("SELECT COUNT(*) FROM runs").fetchone() == (1,)


def sub_runs(runs: Path) -> set[Path]:
    """Folders below an event file's: TensorBoard shows them as parts of that run."""
    return {path for path in runs.glob("*/*/tensorboard/*") if path.is_dir()}


@pytest.mark.parametrize("backend", [backend for backend in BACKENDS if backend != "jsonl"])
@pytest.mark.feature("M21", "better", "compared value by value; Comet would be a plug-in")
def test_every_backend_shows_the_same_last_values(job: Path, jsonl: Scalars, backend: str) -> None:
    shown = users(scalars_in(backend, the_run_in(job / "runs")))

    wanted = {
        (name, step): as_stored(backend, value)
        for name, values in users(jsonl).items()
        for step, value in values.items()
    }
    found = {(name, step): value for name, values in shown.items() for step, value in values.items()}
    assert found.keys() == wanted.keys()
    different = {key: (found[key], value) for key, value in wanted.items() if repr(found[key]) != repr(value)}
    assert different == {}


def as_stored(backend: str, value: float) -> float:
    """Return what a backend keeps of a double (docs/protocol.md §2.4)."""
    if backend == "tensorboard":
        return struct.unpack("<f", struct.pack("<f", value))[0]
    if backend == "mlflow" and math.isinf(value):
        return math.copysign(sys.float_info.max, value)
    return value


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_backend_shows_histograms_that_count_every_finite_value_in_its_bin(job: Path, backend: str) -> None:
    wanted = {
        (name, step): values
        for name, steps in expected_histograms(written_in(job / "written")).items()
        for step, values in steps.items()
    }

    shown = histograms_in(backend, the_run_in(job / "runs"))

    assert sorted(shown) == sorted(wanted)
    for place, values in wanted.items():
        edges, counts = shown[place]
        assert list(edges) == sorted(edges), place
        assert sum(counts) == len(values), place
        in_bins = counts_in_bins(values, edges)
        assert all(least <= count <= most for (least, most), count in zip(in_bins, counts, strict=True)), place
        if "histogram/within" not in place[0]:
            # Exponential buckets, at most 512 for the 19 octaves of this job's values and as many below 0.
            assert all(wide(low, high) < 1.1 for low, high in pairwise(edges) if low * high > 0), place


def wide(low: float, high: float) -> float:
    return max(abs(low), abs(high)) / min(abs(low), abs(high))
