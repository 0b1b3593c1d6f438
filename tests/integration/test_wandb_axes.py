"""What a metric is drawn over in W&B, as its own files say."""

from __future__ import annotations

from pathlib import Path

from wandb.proto import wandb_internal_pb2

from otel_ml_exporters.backends.wandb.transaction_log import records
from tests.integration.worker_process import environment, run
from tests.waiting import eventually

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
        for path in folder.glob("runs/wandb/offline-run-*/*.wandb")
        for _, content in records(path)
    ]


def test_what_was_recorded_before_the_first_step_too_is_drawn_over_steps(tmp_path: Path) -> None:
    variables = {"OTEL_ML_ALLOWED_LATENESS": "100", "WANDB_MODE": "offline"}
    run(LOADS_FIRST, environment(tmp_path, variables), tmp_path)
    eventually(lambda: any(record.HasField("exit") for record in sent(tmp_path)))

    histories = [record.history.item for record in sent(tmp_path) if record.HasField("history")]
    rows = [{item.key or item.nested_key[0] for item in items} for items in histories]
    drawn = [record.metric.step_metric for record in sent(tmp_path) if record.metric.name == "memory"]

    assert [{"otel_ml/time", "otel_ml/step"} & row for row in rows if "memory" in row] == [
        {"otel_ml/time"},
        *[{"otel_ml/step"}] * 3,
    ]
    assert drawn[-1] == "otel_ml/step"
