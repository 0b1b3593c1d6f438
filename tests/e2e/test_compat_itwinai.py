"""The loggers of itwinai in real processes: one run, read back from every backend."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import otel_ml
from tests.e2e.jobs import BACKENDS, answer_of, environment, finished, scalars_in, the_run_in
from tests.e2e.test_frameworks import as_documented

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

EXAMPLE = "torchrun --nproc-per-node 2 examples/migrate/itwinai_trainer.py"

EVERYTHING = """
import matplotlib
matplotlib.use("Agg")
import numpy as np, torch
from matplotlib.figure import Figure
from otel_ml.compat.itwinai import (
    ConsoleLogger, EmptyLogger, LoggersCollection, MLFlowLogger, Prov4MLLogger, TensorBoardLogger, WandBLogger,
)

logger = LoggersCollection([
    MLFlowLogger(experiment_name="digits", run_name="first", run_description="all kinds"),
    WandBLogger(project_name="digits", offline_mode=True), TensorBoardLogger(), ConsoleLogger(),
    Prov4MLLogger(experiment_name="digits"), EmptyLogger(),
])
figure = Figure()
figure.subplots().plot([1, 2])
model = torch.nn.Linear(4, 2)
with logger.start_logging(rank=0):
    logger.save_hyperparameters({"lr": 0.1})
    for step in (0, 10, 20):
        logger.log(step / 4, "loss", kind="metric", step=step)
    logger.log(1, "global_rank", kind="param")
    logger.log("hello", "note", kind="text", step=1)
    logger.log(figure, "curve", kind="figure", step=1)
    logger.log(np.zeros((4, 4, 3), np.uint8), "digit", kind="image", step=1)
    logger.log({"a": 1}, "config.json", kind="dict")
    logger.log(model, "net", kind="model")
    logger.log(model, "net-best", kind="best_model", registered_model_name="digits-net")
    logger.log(model, "net.pt", kind="torch")
    logger.log(torch.utils.data.TensorDataset(torch.zeros(3, 4)), "train", kind="dataset")
    logger.log(__file__, "script", kind="artifact")
    logger.log(model, "net", kind="watch")
    model(torch.ones(2, 4)).sum().backward()
    logger.log((model, torch.ones(2, 4)), "flops", kind="flops_pb", step=1)
    logger.log((model, [torch.ones(2, 4)] * 3), "flops_epoch", kind="flops_pe", step=1)
    logger.log(None, "system", kind="system", step=1)
    logger.log(0.5, "emissions", kind="carbon", step=1)
    logger.log(2.5, "elapsed", kind="execution_time", step=1)
    logger.log([__file__], "mine", kind="prov_documents")
"""


@pytest.mark.full
@pytest.mark.feature("I6", "better", "MLflow, W&B, TensorBoard, console and provenance as one run")
@pytest.mark.feature("I11", "yes", "offline_mode writes a folder that `wandb sync` uploads")
@pytest.mark.feature("I2", "yes", "all 18 kinds, read back from each backend")
@pytest.mark.feature("I12", "better", "the model is a version in MLflow's registry, and loads from there")
def test_all_kinds_are_in_every_backend_and_the_model_loads_from_the_registry(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(EVERYTHING)
    finished([sys.executable, script], environment(WANDB_MODE="online"), tmp_path)

    run = the_run_in(tmp_path / "otel-ml-runs")
    assert run.parent.name == "digits"
    answers = {backend: answer_of(backend, run) for backend in BACKENDS}
    for backend, answer in answers.items():
        shown: dict[str, dict[int, float]] = {}
        for name, _, step, value, *_ in [*answer["scalars"], *answer.get("amendments", [])]:
            shown.setdefault(name, {})[step] = float(value)
        assert shown["loss"] == {0: 0.0, 10: 2.5, 20: 5.0}, backend
        assert (shown["flops"], shown["flops_epoch"]) == ({1: 32.0}, {1: 96.0}), backend
        assert (shown["emissions"], shown["elapsed"]) == ({1: 0.5}, {1: 2.5}), backend
        assert {name for name, *_ in answer["images"]} == {"curve", "digit"}, backend
        assert "gradients/weight" in {name for name, *_ in answer["histograms"]}, backend
    answer = answers["mlflow"]
    assert (answer["params"]["lr"], answer["params"]["global_rank"]) == ("0.1", "1")
    names = {name for name, *_ in answer["artifacts"]}
    assert {"config.json", "net", "net-best", "net.pt", "train", "script", "mine"} <= names
    assert any("provenance.json" in inside for _, inside, _ in answer["artifacts"])
    assert weights_in_registry(run, "models:/digits-net@best") == [2, 4]


def weights_in_registry(run: Path, model: str) -> list[int]:
    program = """
import json, sys, mlflow
mlflow.set_tracking_uri(sys.argv[1])
print(json.dumps(list(mlflow.pytorch.load_model(sys.argv[2]).weight.shape)))
"""
    uri = f"sqlite:///{run.resolve().parents[1] / 'mlflow.db'}"
    command = [sys.executable, "-c", program, uri, model]
    done = subprocess.run(command, cwd=run, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    shape: list[int] = json.loads(done.stdout.splitlines()[-1])
    return shape


@pytest.mark.feature("I9", "better", "under torchrun: one run, each worker's own curve and the mean")
def test_the_example_under_torchrun_is_one_run_with_a_curve_for_each_worker(tmp_path: Path) -> None:
    finished(as_documented(EXAMPLE), environment(), tmp_path)

    run = the_run_in(tmp_path / "otel-ml-runs")
    shown = otel_ml.read(run)
    batches = list(range(0, 24, 2))
    assert shown["train_loss"][0] == shown["train_loss/rank_0"][0] == shown["train_loss/rank_1"][0] == batches
    for mean, *each in zip(*(shown[f"train_loss{name}"][1] for name in ("", "/rank_0", "/rank_1")), strict=True):
        assert mean == pytest.approx(sum(each) / 2)
    assert shown["train_loss_epoch"][0] == [0, 1, 2]
    assert scalars_in("tensorboard", run)["train_loss"].keys() == set(batches)
    [document] = tmp_path.glob("mllogs/prov_logs/*/provenance.json")
    assert "ex:training" in json.loads(document.read_text())["activity"]


@pytest.mark.feature("I8", "better", "attach by run_id, be a part by parent_run_id, from other processes")
def test_other_processes_attach_to_a_run_or_are_a_part_of_it(tmp_path: Path) -> None:
    script = tmp_path / "tune.py"
    script.write_text("""
import subprocess, sys
from otel_ml.compat.itwinai import TensorBoardLogger

if len(sys.argv) == 1:
    with TensorBoardLogger().start_logging(rank=0) as logger:
        logger.log(0.1, "best", step=0)
        for arguments in (["run_id", logger.run_id], ["parent_run_id", logger.run_id]):
            subprocess.run([sys.executable, __file__, *arguments], check=True)
        logger.log(0.2, "best", step=1)
else:
    kind, run = sys.argv[1:]
    with TensorBoardLogger().start_logging(rank=0, run_name="trial_0", **{kind: run}) as logger:
        assert logger.run_id == run
        logger.log(3.0, "gpu_power_W" if kind == "run_id" else "loss", step=0)
""")
    finished([sys.executable, script], environment(), tmp_path)

    shown = otel_ml.read(the_run_in(tmp_path / "otel-ml-runs"))
    assert shown["best"] == ([0, 1], [0.1, 0.2])
    assert shown["gpu_power_W"] == ([0], [3.0])
    assert shown["trial_0/loss"] == ([0], [3.0])


def test_a_context_that_an_exception_leaves_is_a_run_that_failed(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("""
from otel_ml.compat.itwinai import ConsoleLogger

with ConsoleLogger().start_logging() as logger:
    logger.log(0.5, "loss", step=0)
    raise SystemExit(3)
""")
    finished([sys.executable, script], environment(), tmp_path, code=3)

    run = the_run_in(tmp_path / "otel-ml-runs")
    assert answer_of("jsonl", run)["status"] == "failed"
    assert otel_ml.read(run)["loss"] == ([0], [0.5])


@pytest.mark.full
def test_a_server_that_is_named_is_used_and_the_variable_is_put_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MLflow 3 refused the default file store: the default here is a database, and any URI may be given."""
    script = tmp_path / "train.py"
    uri = f"sqlite:///{tmp_path / 'mine.db'}"
    script.write_text(f"""
import os
from otel_ml.compat.itwinai import MLFlowLogger

with MLFlowLogger(experiment_name="digits", tracking_uri={uri!r}).start_logging() as logger:
    logger.log(0.5, "loss", step=0)
assert "MLFLOW_TRACKING_URI" not in os.environ
""")
    finished([sys.executable, script], environment(OTEL_ML_EXPORTERS="tensorboard"), tmp_path)

    run = the_run_in(tmp_path / "otel-ml-runs")
    assert scalars_in("tensorboard", run)["loss"] == {0: 0.5}  # added from outside
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    assert scalars_in("mlflow", run)["loss"] == {0: 0.5}
