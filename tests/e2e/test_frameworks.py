"""Lightning, transformers and accelerate with several real processes: one run, every rank in it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import otel_ml
from tests.e2e.jobs import BACKENDS, ROOT, answer_of, environment, finished, scalars_in, the_run_in, torchrun

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

LIGHTNING = "torchrun --nproc-per-node 2 examples/migrate/lightning_trainer.py"
HUGGING_FACE = "torchrun --nproc-per-node 2 examples/migrate/huggingface_trainer.py"


def as_documented(command: str) -> list[object]:
    """Return what runs a command of the docs: `torchrun` on a port of its own."""
    _, _, processes, program = command.split()
    return torchrun(int(processes), ROOT / program)


LINE = """
import {package} as pl, torch
from torch.utils.data import DataLoader, TensorDataset
import otel_ml
from otel_ml.integrations.lightning import OtelMLLogger, OtelMLTiming

class Line(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)

    def training_step(self, batch, batch_idx):
        self.log("rank_0_only", float(batch_idx))
        otel_ml.log({{"ranks": 1.0}}, reduce="sum")
        otel_ml.log({{"own": float(self.global_rank)}}, reduce="rank")
        return self.layer(batch[0]).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)

if __name__ == "__main__":
    logger = OtelMLLogger("line")
    trainer = pl.Trainer(accelerator="cpu", devices=2, strategy="{strategy}", max_epochs=1, log_every_n_steps=1,
                         logger=logger, callbacks=[OtelMLTiming()], enable_checkpointing=False,
                         enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(Line(), DataLoader(TensorDataset(torch.ones(16, 2)), batch_size=2))
"""
STEPS = list(range(4))


@pytest.mark.full
@pytest.mark.parametrize(("package", "strategy"), [("pytorch_lightning", "ddp"), ("lightning", "ddp_spawn")])
def test_processes_that_lightning_starts_are_ranks_of_one_run(package: str, strategy: str, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(LINE.format(package=package, strategy=strategy))

    said = finished([sys.executable, script], environment(OTEL_ML_EXPORTERS="jsonl"), tmp_path)

    shown = otel_ml.read(the_run_in(tmp_path / "otel-ml-runs"))
    assert shown["ranks"] == (STEPS, [2.0] * 4), said
    assert (shown["own/rank_0"], shown["own/rank_1"]) == ((STEPS, [0.0] * 4), (STEPS, [1.0] * 4))
    assert shown["rank_0_only"] == (STEPS, [0.0, 1.0, 2.0, 3.0])
    for phase in ("data", "batch", "forward", "backward", "optimizer"):
        assert shown[f"time/{phase}"][0] == STEPS


@pytest.mark.full
@pytest.mark.feature("I10", "better", "under torchrun: one run with the best checkpoint, in every backend")
def test_the_lightning_example_is_one_run_in_every_backend(tmp_path: Path) -> None:
    command = as_documented(LIGHTNING)
    finished(command, environment(OTEL_ML_EXPORTERS=",".join(BACKENDS)), tmp_path)

    run = the_run_in(tmp_path / "otel-ml-runs")
    for backend in BACKENDS:
        shown = scalars_in(backend, run)
        assert shown["samples"] == dict.fromkeys(range(16), 32.0), backend
        assert shown["train_loss"][15] < shown["train_loss"][0], backend
        assert sorted(shown["time/backward"]) == list(range(16)), backend
    assert {"best", "best/metadata"} <= {name for name, *_ in answer_of("jsonl", run)["artifacts"]}


def test_the_transformers_example_is_one_run_of_two_ranks(tmp_path: Path) -> None:
    command = as_documented(HUGGING_FACE)
    finished(command, environment(OTEL_ML_EXPORTERS="jsonl,tensorboard"), tmp_path)

    run = the_run_in(tmp_path / "otel-ml-runs")
    for backend in ("jsonl", "tensorboard"):
        shown = scalars_in(backend, run)
        assert sorted(shown["train/loss"]) == [5, 10, 15, 20], backend
        assert sorted(shown["eval/loss"]) == [10, 20], backend
        assert sorted(shown["time/train_step"]) == list(range(1, 21)), backend


def test_accelerate_logs_from_the_main_process_and_otel_ml_from_all(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("""
from accelerate import Accelerator
import otel_ml
from otel_ml.integrations.huggingface import OtelMLTracker

accelerator = Accelerator(log_with=OtelMLTracker("digits"), cpu=True)
accelerator.init_trackers("digits", config={"lr": 0.1})
for step in range(5):
    otel_ml.set_step(step)
    with otel_ml.timed("work"):
        otel_ml.log({"ranks": 1}, reduce="sum")
    accelerator.log({"main": step * 2.0 + accelerator.process_index}, step=step)
accelerator.end_training()
""")
    finished(torchrun(2, script), environment(OTEL_ML_EXPORTERS="jsonl"), tmp_path)

    shown = otel_ml.read(the_run_in(tmp_path / "otel-ml-runs"))
    assert shown["ranks"] == ([0, 1, 2, 3, 4], [2.0] * 5)
    assert shown["main"] == ([0, 1, 2, 3, 4], [0.0, 2.0, 4.0, 6.0, 8.0])
    assert shown["time/work"][0] == [0, 1, 2, 3, 4]
