"""Data-parallel PyTorch on 4 ranks: exactly the seven lines marked `# otel_ml`.

    torchrun --nproc-per-node 4 examples/torchrun_ddp.py

Expected: one run, not four. `loss` is the mean over the ranks, `samples` their sum (128 a step), `time/forward` and
`time/backward` the slowest rank. 40 steps, a few seconds on a laptop; no rank waits for another one to log.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import otel_ml  # otel_ml


def loader() -> DataLoader:
    features = torch.randn(5120, 8, generator=torch.Generator().manual_seed(0))
    data = TensorDataset(features, features.sum(dim=1, keepdim=True))
    return DataLoader(data, batch_size=32, sampler=DistributedSampler(data))


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

    with otel_ml.init("torchrun-ddp", params={"lr": 0.05, "batch": 32}):  # otel_ml
        for features, target in otel_ml.steps(loader()):  # otel_ml
            with otel_ml.timed("forward"):  # otel_ml
                loss = torch.nn.functional.mse_loss(model(features), target)
            with otel_ml.timed("backward"):  # otel_ml
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            otel_ml.log({"loss": loss})  # otel_ml
            otel_ml.log({"samples": len(features)}, reduce="sum")  # otel_ml

    dist.destroy_process_group()


if __name__ == "__main__":
    main()
