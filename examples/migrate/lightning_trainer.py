"""Lightning: the logger, and where the time of a batch goes on every rank.

    python examples/migrate/lightning_trainer.py
    torchrun --nproc-per-node 2 examples/migrate/lightning_trainer.py

Expected: one run. `train_loss` falls, `samples` is the sum over ranks, and `time/forward`, `time/backward` and
`time/optimizer` are those of the slowest rank. The best checkpoint is an artifact with the alias `best`.
"""

from __future__ import annotations

import os

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.utils.data import DataLoader, TensorDataset

import otel_ml
from otel_ml.integrations.lightning import OtelMLLogger, OtelMLTiming


class Regression(lightning.LightningModule):
    def __init__(self, learning_rate: float = 0.1) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch: list[torch.Tensor], batch_idx: int) -> torch.Tensor:
        inputs, targets = batch
        loss = torch.nn.functional.mse_loss(self.layer(inputs), targets)
        self.log("train_loss", loss)  # Lightning's: rank 0's value, or the mean with sync_dist=True
        otel_ml.log({"samples": len(inputs)}, reduce="sum")  # of every rank, without a collective
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), self.hparams.learning_rate)


def main() -> None:
    torch.manual_seed(0)
    inputs = torch.randn(256, 4)
    loader = DataLoader(TensorDataset(inputs, inputs.sum(1, keepdim=True)), batch_size=16)
    logger = OtelMLLogger("lightning")
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
        max_epochs=2,
        log_every_n_steps=1,
        logger=logger,
        callbacks=[OtelMLTiming(), ModelCheckpoint(monitor="train_loss", filename="best")],
        enable_progress_bar=False,
    )
    trainer.fit(Regression(), loader)


if __name__ == "__main__":
    main()
