"""itwinai: a training loop with its loggers; only the import is new.

    python examples/migrate/itwinai_trainer.py
    torchrun --nproc-per-node 2 examples/migrate/itwinai_trainer.py

Expected: one run in TensorBoard and `metrics.jsonl`. `train_loss` is the mean over workers, `train_loss/rank_0` (and
`rank_1`) each worker's own; every second batch is logged. `mllogs/prov_logs` holds a W3C PROV document.
"""

from __future__ import annotations

import os

import torch

from otel_ml.compat.itwinai import ConsoleLogger, LoggersCollection, Prov4MLLogger, TensorBoardLogger

EPOCHS, BATCHES = 3, 8


def main() -> None:
    rank = int(os.environ.get("RANK", "0"))
    torch.manual_seed(rank)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    logger = LoggersCollection(
        [
            ConsoleLogger(log_freq=2, log_on_workers=-1),
            TensorBoardLogger(log_freq=2, log_on_workers=-1),
            Prov4MLLogger(experiment_name="itwinai", save_after_n_logs=10),
        ]
    )
    with logger.start_logging(rank=rank):
        logger.save_hyperparameters({"lr": 0.1, "epochs": EPOCHS})
        for epoch in range(EPOCHS):
            losses = []
            for batch in range(BATCHES):
                inputs = torch.randn(16, 4)
                loss = torch.nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
                step = epoch * BATCHES + batch
                logger.log(loss.item(), "train_loss", kind="metric", step=step, batch_idx=batch)
            logger.log(sum(losses) / len(losses), "train_loss_epoch", kind="metric", step=epoch)
        if rank == 0:
            logger.log(model, "model.pt", kind="model", step=EPOCHS)


if __name__ == "__main__":
    main()
