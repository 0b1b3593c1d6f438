"""`torch.multiprocessing.spawn`: only the process group knows the ranks."""

import sys

import torch.distributed as dist
from torch import multiprocessing

from tests.launchers.programs.job import train


def work(rank: int, world_size: int, store: str) -> None:
    """Be one rank."""
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world_size)
    train()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    multiprocessing.spawn(work, args=(2, sys.argv[1]), nprocs=2)
