"""A run goes on by its id where its folder is not: its backends have what was recorded before, and get what follows."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.integration.conftest import Bench, Sender
from tests.otlp import FakeWriter
from tests.waiting import eventually


def recorded(sender: Sender, writer: FakeWriter, steps: range) -> None:
    for step in steps:
        sender.send("metrics", writer.step(step, {"loss": step / 2}))


def is_delivered(sender: Sender) -> bool:
    run = sender.run()
    return run is not None and run["status"] == "finished" and run["pending"] == 0


def stored(database: Path) -> list[tuple[int, float]]:
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{database}")
    [run] = client.search_runs([one.experiment_id for one in client.search_experiments()])
    return sorted((point.step, point.value) for point in client.get_metric_history(run.info.run_id, "loss"))


@pytest.mark.timeout(300)
def test_a_run_that_goes_on_on_another_node_has_all_its_values_in_mlflow_once(
    bench: Bench, tmp_path: Path, mlflow_database: Path
) -> None:
    database = tmp_path / "shared.db"
    shutil.copy(mlflow_database, database)
    exporters = {"mlflow": {"tracking_uri": f"sqlite:///{database}"}}
    for node, steps in (("a", range(5)), ("b", range(5, 8)), ("b", range(8, 10)), ("c", range(10, 20))):
        writer = FakeWriter(instance=f"{steps}")
        service = bench.service(dir=tmp_path / node, exporters=exporters)
        sender = bench.sender(service)
        recorded(sender, writer, steps)
        sender.send("logs", writer.goodbye())
        eventually(lambda sender=sender: is_delivered(sender), timeout=60)
        said = [notice for notice in sender.run()["notices"] if "begun in another folder" in notice]
        assert len(said) == (node != "a"), said
        service.stop()

    assert stored(database) == [(step, step / 2) for step in range(20)]
