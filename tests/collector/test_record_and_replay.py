"""`record.yaml` keeps what passes the Collector; `otel-ml replay` makes the same run of it, and answers more."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.collector.pipeline import Collector, Service, experiment_of, ranks, training
from tests.e2e.jobs import Scalars, environment, finished, scalars_in
from tests.e2e.oracle import expected
from tests.e2e.rank import written_in

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


class Recorded(NamedTuple):
    folder: Path
    file: Path
    live: Scalars
    run_id: str


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """Run a job through a Collector that records."""
    folder = tmp_path_factory.mktemp("recorded")
    file = folder / "recording.jsonl"
    experiment = experiment_of(folder)
    with (
        Service(folder) as service,
        Collector(folder, "gateway", "record", OTEL_ML_SERVICE=service.grpc, OTEL_ML_RECORDING=file) as collector,
    ):
        commands = ranks(
            folder, collector.endpoint, seed=3, roles={"trainer": 4, "generator": 2}, steps=30, pause=0.05,
            OTEL_ML_EXPERIMENT_ID=experiment,
        )  # fmt: skip
        with training(commands, folder):
            pass
        service.wait_for_the_end_of(experiment)
        collector.stop()
        service.stop()
    return Recorded(folder, file, users(scalars_in("jsonl", service.run_of(experiment))), experiment)


def users(shown: Scalars) -> Scalars:
    return {name: values for name, values in shown.items() if "otel_ml/" not in name}


def replayed(recorded: Recorded, into: Path, *options: object) -> Scalars:
    command = [sys.executable, "-m", "otel_ml_service", "replay", recorded.file, "--to", "jsonl", "--dir", into]
    finished([*command, *options], environment(), recorded.folder)
    [run] = into.glob(f"*/{recorded.run_id}")
    return users(scalars_in("jsonl", run))


def test_a_replay_equals_the_live_run_bit_by_bit_nan_and_inf_too(recorded: Recorded, tmp_path: Path) -> None:
    again = replayed(recorded, tmp_path)

    assert {name: list(map(repr, sorted(values.items()))) for name, values in again.items()} == {
        name: list(map(repr, sorted(values.items()))) for name, values in recorded.live.items()
    }
    assert {"nan", "inf", "-inf"} <= {repr(value) for value in again["special"].values()}


def test_a_replay_answers_what_nobody_asked_for_at_the_time(recorded: Recorded, tmp_path: Path) -> None:
    again = replayed(recorded, tmp_path, "--reduce", "weighted=rank,max", "--experiment", "asked later")

    written = [record for record in written_in(recorded.folder / "written") if record.name == "weighted"]
    wanted = expected(record.__class__(**{**vars(record), "reduction": "mean,rank,max"}) for record in written)
    assert wanted
    for name, values in wanted.items():
        assert again[name] == pytest.approx(values, rel=1e-12), name
    assert again["weighted"] == recorded.live["weighted"]


def test_what_cannot_be_told_later_is_said_and_nothing_is_written(recorded: Recorded, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "otel_ml_service", "replay", recorded.file, "--to", "jsonl", "--dir", tmp_path]

    said = finished([*command, "--reduce", "weighted=p50"], environment(), recorded.folder, code=1)
    unknown = finished([*command, "--reduce", "wieghted=rank"], environment(), recorded.folder, code=1)

    assert "'weighted' was sent without buckets" in said
    assert "no metric is called so" in unknown
    assert not list(tmp_path.glob("*/*/metrics.jsonl"))


def test_a_line_that_was_cut_off_is_left_out_and_said(recorded: Recorded, tmp_path: Path) -> None:
    cut = tmp_path / "cut.jsonl"
    cut.write_bytes(recorded.file.read_bytes()[:-100])
    command = [sys.executable, "-m", "otel_ml_service", "replay", cut, "--to", "jsonl", "--dir", tmp_path / "runs"]

    said = finished(command, environment(), tmp_path)

    assert "1 line" in said
    assert "cannot be read" in said
