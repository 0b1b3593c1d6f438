"""Lightning starts this script again for the second rank."""

import lightning
import torch
from torch.utils.data import DataLoader

import otel_ml


class Model(lightning.LightningModule):
    """Records what `job.py` does."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)

    def training_step(self, batch: torch.Tensor, index: int) -> torch.Tensor:
        otel_ml.log({"tokens": 1, "who": run.rank}, step=index, reduce="sum")
        return self.layer(batch).sum()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), 0.1)


if __name__ == "__main__":
    data = DataLoader(torch.ones(10, 2), batch_size=1)
    with otel_ml.init("launched", exporters="jsonl") as run:
        quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
        lightning.Trainer(accelerator="cpu", devices=2, strategy="ddp", max_epochs=1, **quiet).fit(Model(), data)
