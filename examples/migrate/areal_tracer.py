"""AReaL's `perf_tracer`, called as its trainers and workflows call it, on ranks without a GPU.

    torchrun --nproc-per-node 2 examples/migrate/areal_tracer.py

It needs `pip install areal==1.0.4`. The lines with `# otel_ml` are all that otel_ml needs.

Expected: AReaL's scopes of all ranks as timers at the steps 0 to 3, such as `time/train.rollout` and
`time/ppo_actor.ppo_update`; of the sessions of each step how long they took (`session/total_s`, `session/generate_s`),
how many were accepted and rejected, and the longest one (`time/session`).
"""

from __future__ import annotations

import asyncio
import os

import torch
import torch.distributed as dist
from areal.api.cli_args import PerfTracerConfig, SessionTracerConfig
from areal.utils import perf_tracer
from areal.utils.perf_tracer import Category

import otel_ml  # otel_ml
from otel_ml.integrations.areal import instrument_areal  # otel_ml

STEPS, SAMPLES = 4, 3


@perf_tracer.trace_session("reward")
async def reward_of(answer: float) -> float:
    return answer % 2


@perf_tracer.session_context()
async def episode(number: int) -> float:
    async with perf_tracer.atrace_session_phase("generate"):
        await asyncio.sleep(0.01 * (1 + number))
    return await reward_of(float(number))


async def workflow(task_id: int) -> None:
    perf_tracer.set_task_id(task_id)
    reward = await episode(task_id % SAMPLES)
    perf_tracer.trace_session_event("mark_finalized", task_id=task_id, status="accepted" if reward else "rejected")


async def rollout(first: int) -> None:
    tasks = range(first, first + SAMPLES)
    for task_id in tasks:
        perf_tracer.register_task(task_id)
    await asyncio.gather(*[workflow(task_id) for task_id in tasks])


@perf_tracer.trace_perf("ppo_actor.ppo_update", category="compute")
def ppo_update(weights: torch.Tensor) -> None:
    with perf_tracer.trace_scope("fsdp_engine.forward"):
        (weights @ weights).sum()


def main() -> None:
    dist.init_process_group("gloo")
    names = {"experiment_name": "migrate-areal-tracer", "trial_name": "cpu", "fileroot": "outputs"}
    config = PerfTracerConfig(**names, enabled=True, session_tracer=SessionTracerConfig(enabled=True))
    otel_ml.init(names["experiment_name"])  # otel_ml
    instrument_areal()  # otel_ml
    perf_tracer.configure(config, rank=int(os.environ["RANK"]), role="master")

    weights = torch.ones(200, 200)
    for step in range(STEPS):
        at = {"global_step": step}
        with perf_tracer.trace_scope("train.rollout", category=Category.COMPUTE, args=at):
            asyncio.run(rollout(step * SAMPLES))
        with perf_tracer.trace_scope("train.ppo_update", category=Category.COMPUTE, args=at):
            ppo_update(weights)
        with perf_tracer.trace_scope("train.barrier", category=Category.SYNC, args=at):
            dist.barrier()
        perf_tracer.instant("train.step_done", category="instr", args=at)
        perf_tracer.save(step=step)
    perf_tracer.save(force=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
