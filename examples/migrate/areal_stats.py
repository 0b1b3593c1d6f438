"""AReaL's `stats_tracker` and `StatsLogger`, called as its trainers call them, on ranks without a GPU.

    torchrun --nproc-per-node 2 examples/migrate/areal_stats.py

It needs `pip install areal==1.0.4`. The lines with `# otel_ml` are all that otel_ml needs. AReaL imports W&B with its
module, so `sys.modules["wandb"]` stands before that, and its mode is "disabled" where nothing else is said.

Expected: AReaL's metrics, which it has reduced over the ranks, at the steps 0 to 5, and `sequences`, which all ranks
record.
"""

from __future__ import annotations

import sys  # otel_ml

import torch
import torch.distributed as dist

import otel_ml  # otel_ml
from otel_ml.compat import wandb  # otel_ml

EPOCHS, STEPS_PER_EPOCH, SEQUENCES, LENGTH = 2, 3, 4, 6


def main() -> None:
    sys.modules["wandb"] = wandb  # otel_ml

    from areal.api import FinetuneSpec
    from areal.api.cli_args import BaseExperimentConfig, StatsLoggerConfig, TensorBoardConfig, WandBConfig
    from areal.utils import stats_tracker
    from areal.utils.stats_logger import StatsLogger

    dist.init_process_group("gloo")
    rank, group = dist.get_rank(), dist.group.WORLD
    names = {"experiment_name": "migrate-areal", "trial_name": "one_layer"}
    kept = StatsLoggerConfig(
        **names,
        fileroot="outputs",
        wandb=WandBConfig(mode="offline", tags=["cpu"]),
        tensorboard=TensorBoardConfig(path="outputs/tensorboard"),
    )
    spec = FinetuneSpec(total_train_epochs=EPOCHS, dataset_size=STEPS_PER_EPOCH * 8, train_batch_size=8)
    logger = StatsLogger(BaseExperimentConfig(**names, stats_logger=kept, seed=1), spec)

    torch.manual_seed(0)
    model = torch.nn.Linear(LENGTH, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    torch.manual_seed(1 + rank)
    for step in range(EPOCHS * STEPS_PER_EPOCH):
        otel_ml.log({"sequences": SEQUENCES}, step=step, reduce="sum")  # otel_ml
        with stats_tracker.record_timing("rollout"):
            inputs = torch.randn(SEQUENCES, LENGTH)
            rewards = inputs.sum(dim=1)
        with stats_tracker.record_timing("train_step"), stats_tracker.scope("ppo_actor"):
            losses = (model(inputs).squeeze(1) - rewards).square()
            optimizer.zero_grad()
            losses.mean().backward()
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
            optimizer.step()
            stats_tracker.denominator(
                n_seqs=torch.ones(SEQUENCES, dtype=torch.bool),
                correct_n_seqs=rewards > 0,
                unheard_n_seqs=torch.zeros(SEQUENCES, dtype=torch.bool),
            )
            stats_tracker.stat(task_reward=rewards, loss=losses.detach(), denominator="n_seqs")
            stats_tracker.stat(correct_loss=losses.detach(), denominator="correct_n_seqs")
            stats_tracker.stat(best=rewards, denominator="n_seqs", reduce_type=stats_tracker.ReduceType.MAX)
            stats_tracker.stat(of_none=rewards, denominator="unheard_n_seqs")
            stats_tracker.scalar(eps_clip=0.2, use_dual_clip=0)
            with stats_tracker.scope("update"):
                stats_tracker.scalar(lr=0.05)
        stats = stats_tracker.export_all(reduce_group=group)
        logger.commit(step // STEPS_PER_EPOCH, step % STEPS_PER_EPOCH, step, stats)
        dist.barrier()
    logger.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
