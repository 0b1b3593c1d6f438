"""What a metric is drawn over in W&B, as its own files say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from wandb.proto import wandb_internal_pb2

from otel_ml_exporters.backends.wandb.transaction_log import records
from tests.integration.worker_process import environment, run
from tests.waiting import eventually

pytestmark = pytest.mark.timeout(300)  # each starts processes of W&B's own

LOADS_FIRST = """
    import os, pathlib, time
    import otel_ml
    run = otel_ml.init("axes", id="one", exporters="jsonl,wandb")
    otel_ml.log({"memory": 1.0})  # while the model is loaded
    rows = run.dir / "metrics.jsonl"
    deadline = time.monotonic() + 40
    while not (rows.exists() and '"memory"' in rows.read_text()) and time.monotonic() < deadline:
        time.sleep(0.05)  # between two looks
    for step in range(3):
        otel_ml.set_step(step)
        otel_ml.log({"memory": 2.0})
    otel_ml.shutdown()
"""


def sent(folder: Path) -> list[wandb_internal_pb2.Record]:
    return [
        wandb_internal_pb2.Record.FromString(content)
        for path in folder.glob("**/offline-run-*/*.wandb")
        for _, content in records(path)
    ]


def test_what_was_recorded_before_the_first_step_too_is_drawn_over_steps(tmp_path: Path) -> None:
    variables = {"OTEL_ML_ALLOWED_LATENESS": "100", "WANDB_MODE": "offline"}
    run(LOADS_FIRST, environment(tmp_path, variables), tmp_path)
    eventually(lambda: any(record.HasField("exit") for record in sent(tmp_path)), timeout=120)

    histories = [record.history.item for record in sent(tmp_path) if record.HasField("history")]
    rows = [{item.key or item.nested_key[0] for item in items} for items in histories]
    drawn = [record.metric.step_metric for record in sent(tmp_path) if record.metric.name == "memory"]

    assert [{"otel_ml/time", "otel_ml/step"} & row for row in rows if "memory" in row] == [
        {"otel_ml/time"},
        *[{"otel_ml/step"}] * 3,
    ]
    assert drawn[-1] == "otel_ml/step"


WITH_A_STEP_METRIC = """
    from otel_ml.compat import wandb
    with wandb.init(project="axes", mode="offline") as run:
        run.define_metric("val/*", step_metric="epoch")
        for epoch in range(2):
            for _ in range(3):
                run.log({"loss": 1.0})
            run.log({"epoch": epoch, "val/acc": 0.5 + epoch})
"""


def test_a_metric_with_a_step_metric_is_drawn_over_that_and_has_it_in_its_rows(tmp_path: Path) -> None:
    run(WITH_A_STEP_METRIC, environment(tmp_path, {"OTEL_ML_EXPORTERS": "jsonl,wandb"}), tmp_path)
    eventually(lambda: any(record.HasField("exit") for record in sent(tmp_path)), timeout=120)

    histories = [record.history.item for record in sent(tmp_path) if record.HasField("history")]
    rows = [{item.key or item.nested_key[0]: json.loads(item.value_json) for item in items} for items in histories]
    drawn = {record.metric.name: record.metric.step_metric for record in sent(tmp_path) if record.HasField("metric")}

    assert [(row["epoch"], row["val/acc"]) for row in rows if "val/acc" in row] == [(0, 0.5), (1, 1.5)]
    assert drawn["val/acc"] == "epoch"
    assert drawn["loss"] == "otel_ml/step"
    assert all("epoch" not in row for row in rows if "loss" in row)


AS_WANDB = """
    with wandb.init(project="axes", mode="offline", group="night", job_type="train", entity="team") as run:
        run.define_metric("val/*", step_metric="epoch")
        for epoch in range(3):
            for batch in range(2):
                run.log({"loss": 1 / (1 + 2 * epoch + batch), "epoch": epoch})
            run.log({"epoch": epoch, "val/acc": 0.5 + epoch})
        run.log({"val/late": 7.0})
"""


def charts(records: list[wandb_internal_pb2.Record], steps: str) -> dict[str, list[tuple[float, float]]]:
    """Return what W&B's page draws of each metric: a row that lacks what it is drawn over is no point of it."""
    drawn = {record.metric.name: record.metric.step_metric for record in records if record.HasField("metric")}
    found: dict[str, list[tuple[float, float]]] = {}
    for items in (record.history.item for record in records if record.HasField("history")):
        row = {item.key or item.nested_key[0]: json.loads(item.value_json) for item in items}
        for name in row.keys() & {"loss", "epoch", "val/acc", "val/late"}:
            over = drawn.get(name) or ("epoch" if name.startswith("val/") else steps)
            if over in row:
                found.setdefault(name, []).append((row[over], row[name]))
    return {name: sorted(points) for name, points in found.items()}


def test_every_chart_of_a_script_has_the_points_that_wandbs_own_client_gives_it(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for folder, imported in ((ours, "from otel_ml.compat import wandb"), (theirs, "import wandb")):
        folder.mkdir()
        script = f"    {imported}\n{AS_WANDB}"
        run(script, environment(folder, {"OTEL_ML_EXPORTERS": "jsonl,wandb"}), folder)
    eventually(lambda: any(record.HasField("exit") for record in sent(ours)), timeout=120)

    shown, expected = charts(sent(ours), "otel_ml/step"), charts(sent(theirs), "_step")
    # A row without its step metric gets that from W&B's client: a further point of `epoch`, with the value it had.
    expected["epoch"] = [point for point in expected["epoch"] if point[0] < 9]
    assert shown == expected
    for folder in (ours, theirs):
        [begun] = [record.run for record in sent(folder) if record.HasField("run")]
        assert (begun.run_group, begun.job_type, begun.entity) == ("night", "train", "team"), folder


BY_BATCH = """
    with wandb.init(project="axes", mode="offline") as run:
        run.define_metric({glob!r}, step_metric="epoch")
        for epoch in range(3):
            for batch in range(4):
                run.log({{"train/loss": 1 / (1 + 4 * epoch + batch), "epoch": epoch}})
            run.log({{"train/acc": 0.5 + epoch, "epoch": epoch}})
        run.log({{"train/loss": 9.0}})
"""


@pytest.mark.parametrize("glob", ["train/*", "*"])
def test_rows_that_share_the_value_of_their_step_metric_are_all_drawn_as_by_wandbs_own_client(
    tmp_path: Path, glob: str
) -> None:
    found = {}
    for name, imported in (("ours", "from otel_ml.compat import wandb"), ("theirs", "import wandb")):
        folder = tmp_path / name
        folder.mkdir()
        script = f"    {imported}\n{BY_BATCH.format(glob=glob)}"
        run(script, environment(folder, {"OTEL_ML_EXPORTERS": "jsonl,wandb"}), folder)
        eventually(lambda folder=folder: any(record.HasField("exit") for record in sent(folder)), timeout=120)
        found[name] = sorted(
            (row["epoch"], key, row[key])
            for items in (record.history.item for record in sent(folder) if record.HasField("history"))
            for row in [{item.key or item.nested_key[0]: json.loads(item.value_json) for item in items}]
            for key in ("train/loss", "train/acc")
            if key in row
        )

    assert found["ours"] == found["theirs"]
    assert len(found["ours"]) == 16


RENAMED = """
    from otel_ml.compat import wandb
    run = wandb.init(project="renamed", name="first", tags=["a"], notes="before", mode="offline", group="night")
    run.log({"loss": 1.0})
    run.name = "second"
    run.tags += ("b",)
    run.notes = "after"
    run.log({"loss": 2.0})
    run.finish()
"""


def test_a_run_that_a_script_gives_another_name_has_it_in_the_backends(tmp_path: Path) -> None:
    variables = {
        "OTEL_ML_EXPORTERS": "jsonl,wandb,mlflow",
        "MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path}/mlflow.db",
    }
    run(RENAMED, environment(tmp_path, variables), tmp_path)
    eventually(lambda: any(record.HasField("exit") for record in sent(tmp_path)), timeout=120)

    *_, said = [record.run for record in sent(tmp_path) if record.HasField("run")]
    assert (said.display_name, said.notes) == ("second", "after")
    assert {"a", "b", "group:night"} <= set(said.tags)

    import mlflow

    client = mlflow.MlflowClient(variables["MLFLOW_TRACKING_URI"])

    def stored() -> list[tuple[str, str | None]]:
        experiments = [found.experiment_id for found in client.search_experiments()]
        return [(found.info.run_name, found.data.tags.get("b")) for found in client.search_runs(experiments)]

    assert eventually(lambda: stored() == [("second", "b")] or None, timeout=120)
    [name] = tmp_path.glob("**/state/name")
    assert name.read_text().strip() == "second"


WITHOUT_SUMMARIES = """
    from otel_ml.compat import wandb
    with wandb.init(project="axes", mode="offline") as run:
        run.define_metric("val/*", step_metric="epoch", summary="none")
        run.define_metric("val/kept", summary="max")
        run.define_metric("again", summary="none")
        for epoch in range(2):
            run.log({"epoch": epoch, "val/acc": 0.5, "val/kept": 0.5, "loss": 1.0, "late": 1.0, "again": 1.0})
        run.define_metric("late", summary="none")
        run.define_metric("again", summary="last")
"""


def test_a_metric_that_shall_have_no_summary_has_none_on_wandbs_page(tmp_path: Path) -> None:
    run(WITHOUT_SUMMARIES, environment(tmp_path, {"OTEL_ML_EXPORTERS": "jsonl,wandb"}), tmp_path)
    eventually(lambda: any(record.HasField("exit") for record in sent(tmp_path)), timeout=120)

    # Of each metric its last definition, which says all of it.
    said = {record.metric.name: record.metric for record in sent(tmp_path) if record.HasField("metric")}
    assert {name for name, metric in said.items() if metric.summary.none} == {"val/acc", "late"}
    assert {name: said[name].step_metric for name in ("val/acc", "val/kept", "late")} == {
        "val/acc": "epoch",
        "val/kept": "epoch",
        "late": "otel_ml/step",
    }
    assert "otel_ml.hidden_summaries" not in [
        item.key for record in sent(tmp_path) for item in (*record.config.update, *record.run.config.update)
    ]
