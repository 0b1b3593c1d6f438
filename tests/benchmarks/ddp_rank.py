"""One rank of the DDP job of `training_loop`: `torchrun … -m tests.benchmarks.ddp_rank JSON`.

One run for the whole job; blocks of steps that are recorded and blocks that are not take turns in the same processes.
Rank 0 prints `[[recorded, not recorded], …]`, seconds a step, each the mean over the ranks.
"""

from __future__ import annotations

import itertools
import json
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

import otel_ml

BEFORE_S = {"on": 1.2, "off": 0.4}
"""Of steps before a block that do not count: longer than the flush interval, so that as much is sent in a recorded
block as it records; and until the service has written what it got."""

WIDTH = 256


@dataclass(frozen=True)
class Spec:
    step_ms: float
    metrics: int
    timers: int
    pairs: int
    block_s: float


class Loop:
    """Training steps of a size that the machine needs about `step_ms` for, with all ranks at work.

    Attributes:
        seconds: what a step takes, which is more than asked for where one pass takes longer; the same on all ranks.
    """

    def __init__(self, spec: Spec) -> None:
        torch.manual_seed(0)
        layers = [torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, 1)]
        self.model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*layers))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-4)
        self.batch = torch.randn(32, WIDTH)
        one, many = self._seconds_of(1), self._seconds_of(20)
        self.passes = max(1, 1 + round((spec.step_ms / 1e3 - one) / ((many - one) / 19)))
        self.seconds = self._seconds_of(self.passes)

    def step(self) -> float:
        """Do one step: `passes` forward and backward, the last of which exchanges gradients."""
        self.optimizer.zero_grad()
        with self.model.no_sync():
            for _ in range(self.passes - 1):
                self.model(self.batch).square().mean().backward()
        loss = self.model(self.batch).square().mean()
        loss.backward()
        self.optimizer.step()
        return float(loss.detach())

    def _seconds_of(self, passes: int) -> float:
        """Return seconds of a step of so many passes, the same on all ranks."""
        self.passes = passes
        taken = []
        for _ in range(30):
            begin = time.perf_counter()
            self.step()
            taken.append(time.perf_counter() - begin)
        return mean_over_ranks(sorted(taken)[len(taken) // 2])


def mean_over_ranks(value: float) -> float:
    tensor = torch.tensor([value], dtype=torch.float64)
    dist.all_reduce(tensor)
    return float(tensor / dist.get_world_size())


def block(loop: Loop, before_s: float, spec: Spec, after_step: Callable[[float], None]) -> dict[str, float]:
    """Run a block; return seconds a step: wall, CPU of this process, and those spent in `after_step`."""
    before, steps = (max(2, round(seconds / loop.seconds)) for seconds in (before_s, spec.block_s))
    for _ in range(before):
        after_step(loop.step())
    dist.barrier()
    calls = 0.0
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(steps):
        loss = loop.step()
        begin = time.perf_counter()
        after_step(loss)
        calls += time.perf_counter() - begin
    dist.barrier()
    found = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu, "calls": calls}
    return {name: mean_over_ranks(seconds / steps) for name, seconds in found.items()}


def recording(spec: Spec) -> Callable[[float], None]:
    names = [f"metric_{index}" for index in range(spec.metrics)]
    number = itertools.count()

    def record(loss: float) -> None:
        otel_ml.set_step(next(number))
        otel_ml.log(dict.fromkeys(names, loss))
        for _ in range(spec.timers):
            with otel_ml.timed("phase"):
                pass

    return record


def main(spec: Spec) -> list[tuple[dict[str, float], dict[str, float]]]:
    loop, found = Loop(spec), []
    otel_ml.init("bench", id=f"ddp-{spec.step_ms}")
    sides: dict[str, Callable[[float], None]] = {"on": recording(spec), "off": lambda loss: None}
    for pair in range(spec.pairs):
        turns: dict[str, Any] = {}
        for side in ("on", "off") if pair % 2 else ("off", "on"):
            turns[side] = block(loop, BEFORE_S[side], spec, sides[side])
            otel_ml.flush(10)  # what a block has recorded is not a load of the next
            dist.barrier()
        found.append((turns["on"], turns["off"]))
    otel_ml.shutdown()
    return found


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    answer = main(Spec(**json.loads(sys.argv[1])))
    if dist.get_rank() == 0:
        print("\n" + json.dumps(answer), flush=True)
    with suppress(RuntimeError):
        dist.destroy_process_group()
