"""Several exporters of one kind: each has a place of its own, or the service says that two have the same."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import otel_ml
from otel_ml.exceptions import ConfigError
from otel_ml_service.config import ServiceConfig
from otel_ml_service.service import Service
from otel_ml_service.stored_runs.run_folders import RunFolder
from tests.contract.readers import tensorboard, wandb
from tests.integration.conftest import Bench
from tests.otlp import FakeWriter
from tests.waiting import eventually


def trained(bench: Bench, exporters: Mapping[str, Mapping[str, Any]]) -> Path:
    """Return the folder of a run of four steps in which the service was restarted."""
    writer = FakeWriter()
    for steps in (range(2), range(2, 4)):
        service = bench.service(exporters=exporters)
        sender = bench.sender(service)
        for step in steps:
            sender.send("metrics", writer.step(step, {"loss": step / 2}))
        if steps.stop == 4:
            sender.send("logs", writer.goodbye())
            eventually(lambda sender=sender: sender.run()["status"] == "finished" and sender.run()["pending"] == 0)
        service.stop()
    return bench.folder / "default" / "run-1"


LOSS = ([0, 1, 2, 3], [0.0, 0.5, 1.0, 1.5])
POINTS = [list(pair) for pair in zip(*LOSS, strict=True)]


def test_each_instance_of_an_exporter_of_files_has_files_of_its_own(bench: Bench) -> None:
    kinds = ("jsonl", "parquet", "tensorboard")
    exporters = {name: {} for kind in kinds for name in (kind, f"{kind}/a", f"{kind}/b c")}

    run = trained(bench, exporters)

    for lines in (run / "metrics.jsonl", run / "jsonl-a" / "metrics.jsonl", *run.glob("jsonl-b_c-*/metrics.jsonl")):
        assert otel_ml.read(lines)["loss"] == LOSS
        assert len(lines.read_text().splitlines()) == len((run / "metrics.jsonl").read_text().splitlines())
    for parts in (run / "parquet", run / "parquet-a", *run.glob("parquet-b_c-*")):
        frame = pd.read_parquet(parts)
        assert frame[frame.name == "loss"].sort_values("seq").value.tolist() == LOSS[1]
    for events in (run / "tensorboard", run / "tensorboard-a", *run.glob("tensorboard-b_c-*")):
        points = tensorboard.scalars(tensorboard.opened(events))
        assert [point[2:] for point in points if point[0] == "loss"] == POINTS
    assert len(list(run.glob("*-b_c-*"))) == len(kinds)


def test_the_metrics_of_a_run_are_found_where_only_instances_wrote_them(bench: Bench) -> None:
    run = trained(bench, {"jsonl/b": {}, "jsonl/a": {"every": 2}})

    assert otel_ml.read(run)["loss"] == ([0, 2], [0.0, 1.0])
    assert RunFolder(run).jsonl == run / "jsonl-a" / "metrics.jsonl"


def test_each_instance_of_wandb_is_a_run_of_its_own(bench: Bench) -> None:
    run = trained(bench, {"wandb": {"mode": "offline"}, "wandb/team": {"mode": "offline", "project": "team"}})

    for run_id in ("run-1", "run-1-team"):
        points = wandb.read(run, run_id)["scalars"]
        assert [point[2:4] for point in points if point[0] == "loss"] == [
            list(pair) for pair in zip(*LOSS, strict=True)
        ]


TWICE = {
    "mlflow": {"mlflow": {}, "mlflow/b": {"every": 10}},
    "mlflow/remote": {
        "mlflow/remote": {"tracking_uri": "http://h:5000"},
        "mlflow/b": {"tracking_uri": "http://h:5000"},
    },
    "swanlab": {"swanlab": {}, "swanlab/b": {}},
    "trackio/a": {"trackio/a": {}, "trackio/b": {}},
    "otlp/a": {"otlp/a": {"endpoint": "http://h:4318"}, "otlp/b": {"endpoint": "http://h:4318/v1/metrics"}},
}


@pytest.mark.parametrize("first", TWICE)
def test_two_instances_that_lead_to_one_place_are_refused_by_name(bench: Bench, first: str) -> None:
    kind = first.partition("/")[0]

    with pytest.raises(ConfigError) as caught:
        bench.service(exporters={"jsonl": {}, **TWICE[first]})

    (problem,) = caught.value.problems
    assert f"exporters.{kind}/b: writes to the same place as exporters.{first}: " in problem


@pytest.mark.parametrize(
    "exporters",
    [
        {"mlflow": {}, "mlflow/b": {"tracking_uri": "http://h:5000"}},
        {"otlp/a": {"endpoint": "http://h:4318"}, "otlp/b": {"endpoint": "http://g:4318"}},
    ],
)
def test_instances_that_lead_to_two_places_are_taken(
    tmp_path: Path, exporters: Mapping[str, Mapping[str, Any]]
) -> None:
    service = Service(ServiceConfig(exporters=exporters, dir=tmp_path, http=("127.0.0.1", 0)))

    service.stop(0)

    assert service.exporters == tuple(exporters)


def test_an_instance_without_a_name_is_refused(bench: Bench) -> None:
    with pytest.raises(ConfigError, match=r"exporters\.jsonl/: the name of the instance is missing"):
        bench.service(exporters={"jsonl": {}, "jsonl/": {}})
