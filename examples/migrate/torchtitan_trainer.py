"""torchtitan's `MetricsProcessor`, called as its trainer calls it, on ranks without a GPU.

    export TITAN_STRUCT_LOGGER_HANDLERS=otel_ml.integrations.torchtitan.register_handler
    torchrun --nproc-per-node 2 examples/migrate/torchtitan_trainer.py

It needs `pip install torchtitan==0.3.0`. The lines with `# otel_ml` are all that otel_ml needs.

Expected: torchtitan's metrics at the steps 1, 5, 10, 15, 20 as it writes them, `validation_metrics/loss` at 10 and 20,
and `tokens`, which all ranks record, at each step. With the variable also the phases of each step on all ranks, such as
`time/step` and `time/optim`.
"""

from __future__ import annotations

import sys  # otel_ml

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torchtitan.components import metrics
from torchtitan.distributed import ParallelDims
from torchtitan.distributed.utils import dist_max, dist_sum
from torchtitan.observability import structured_logger as sl

import otel_ml  # otel_ml
from otel_ml.compat import wandb  # otel_ml

STEPS = 20


class NoDevice:
    """In the place of the monitor of a GPU's memory."""

    device_name = "cpu"

    def get_peak_stats(self) -> metrics.DeviceMemStats:
        return metrics.DeviceMemStats(0.0, 0.0, 0.0, 0.0, 0, 0)

    def reset_peak_stats(self) -> None: ...


def main() -> None:
    sys.modules["wandb"] = wandb  # otel_ml
    sl.init_structured_logger(source="trainer", output_dir="outputs")
    sl.log_trace_instant("training_start")
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh("cpu", (world,))
    metrics.build_device_memory_monitor = NoDevice
    processor = metrics.MetricsProcessor.Config(log_freq=5, enable_wandb=True, enable_tensorboard=True).build(
        parallel_dims=ParallelDims(dp_replicate=1, dp_shard=world, cp=1, tp=1, pp=1, ep=1, world_size=world),
        dump_folder="outputs",
        config_dict={"optimizer": {"name": "SGD", "lr": 0.1}, "training": {"steps": STEPS, "seq_len": 8}},
    )
    processor.num_flops_per_token = 6 * 16

    torch.manual_seed(0)
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    inputs = torch.randn(32, 8, generator=torch.Generator().manual_seed(rank))
    for step in range(1, STEPS + 1):
        sl.set_step(step, relative_step=step)
        otel_ml.log({"tokens": inputs.numel()}, step=step, reduce="sum")  # otel_ml
        with sl.log_trace_span("step"):
            processor.ntokens_since_last_log += inputs.numel()
            processor.data_loading_times.append(0.001)
            sl.log_trace_scalar({"local_valid_tokens": inputs.numel()})
            loss = (model(inputs) - inputs.sum(dim=1, keepdim=True)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            with sl.log_trace_span("optim"):
                for parameter in model.parameters():
                    dist.all_reduce(parameter.grad)
                norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
            if processor.should_log(step):
                processor.log(
                    step,
                    dist_sum(loss.detach(), mesh) / world,
                    dist_max(loss.detach(), mesh),
                    float(norm.item()),
                    extra_metrics={"n_tokens_seen": step * world * inputs.numel(), "lr": 0.1},
                )
            if step % 10 == 0:
                processor.log_validation(loss=dist_sum(loss.detach(), mesh) / world, step=step)
    processor.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
