"""A Lightning module as a user has it, and what goes with it: Lightning takes four seconds to import."""

from __future__ import annotations

from typing import Any

import lightning
import torch
from lightning.pytorch import profilers
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from lightning.pytorch.loggers import Logger
from torch.utils.data import DataLoader, TensorDataset

from otel_ml.compat.itwinai import ItwinaiLogger
from otel_ml.integrations.lightning import OtelMLLogger, OtelMLTiming

__all__ = [
    "BATCHES",
    "Callback",
    "ItwinaiLogger",
    "Line",
    "Logger",
    "ModelCheckpoint",
    "OtelMLLogger",
    "OtelMLTiming",
    "loader",
    "profilers",
    "trainer",
]

BATCHES = 5


class Line(lightning.LightningModule):
    def __init__(self, width: int = 1) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.layer = torch.nn.Linear(2, width)

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        [inputs] = batch
        loss = self.layer(inputs).square().mean()
        self.log("loss", float(batch_idx))
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", 0.25)

    def test_step(self, batch: Any, batch_idx: int) -> None:
        self.log("test_loss", 0.125)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), 0.1)


def loader() -> DataLoader:
    return DataLoader(TensorDataset(torch.ones(2 * BATCHES, 2)), batch_size=2)


def trainer(**arguments: Any) -> lightning.Trainer:
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "num_sanity_val_steps": 0}
    return lightning.Trainer(accelerator="cpu", devices=1, max_epochs=1, log_every_n_steps=1, **quiet, **arguments)
