"""One model under FSDP at step 0, under DDP at step 1, half and half at step 2, as each records its norms.

Prints what torch says they are.
"""

from __future__ import annotations

import json

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import otel_ml
from otel_ml.diagnostics.dynamics import Norms
from otel_ml.diagnostics.inspection import Inspector


def model() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.ReLU(), torch.nn.Linear(7, 1))


def trained(net: torch.nn.Module) -> torch.nn.Module:
    batches = torch.randn(dist.get_world_size(), 8, 5, generator=torch.Generator().manual_seed(1))
    net(batches[dist.get_rank()]).square().mean().backward()
    return net


def main() -> None:
    dist.init_process_group("gloo")
    config = {
        "all": {
            "layers": {"layer_name_regex_pattern": "2"},
            "LogTensorStats": {"stats": ["l1_norm", "l2_norm", "std"], "tensors": ["weight", "wgrad", "output"]},
        }
    }
    with otel_ml.init("norms", exporters="jsonl"):
        # The bias of layer 2 has one element: the shard of the other rank is empty.
        sharded = fully_shard(model())
        otel_ml.set_step(0)
        inspector = Inspector(sharded, config)
        norms = Norms(trained(sharded), each=r"weight|bias")
        norms.record_gradients()
        norms.record_parameters()
        inspector.step()
        inspector.close()

        copied = model()
        otel_ml.set_step(1)
        inspector = Inspector(copied, config)
        trained(DistributedDataParallel(copied))
        norms = Norms(copied, each=r"weight|bias")
        norms.record_gradients()
        norms.record_parameters()
        inspector.step()
        inspector.close()

        mixed = model()
        fully_shard(mixed[2])
        otel_ml.set_step(2)
        trained(mixed)
        for parameter in mixed[0].parameters():
            dist.all_reduce(parameter.grad, dist.ReduceOp.AVG)
        norms = Norms(mixed, each=r"weight|bias")
        norms.record_gradients()
        norms.record_parameters()
        otel_ml.set_step(3)
        otel_ml.shutdown(timeout=60.0)
    if dist.get_rank() == 0:
        gradients = {name: parameter.grad for name, parameter in copied.named_parameters()}
        whole = torch.cat([gradient.flatten() for gradient in gradients.values() if gradient is not None])
        weight = copied[2].weight
        print(
            json.dumps(
                {
                    "grad/norm": whole.norm().item(),
                    "grad/sum_of_squares": whole.square().sum().item(),
                    "grad/mean_square": whole.square().mean().item(),
                    "grad/abs_max": whole.abs().max().item(),
                    "grad/zeros": float((whole == 0).sum()),
                    "grad/zero_fraction": (whole == 0).double().mean().item(),
                    "param/norm": torch.cat([one.flatten() for one in copied.parameters()]).norm().item(),
                    **{f"grad/norm/{name}": gradient.norm().item() for name, gradient in gradients.items()},
                    "inspect/2/weight/l1_norm": weight.abs().sum().item(),
                    "inspect/2/weight/l2_norm": weight.norm().item(),
                    "inspect/2/wgrad/l2_norm": weight.grad.norm().item(),
                }
            )
        )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
