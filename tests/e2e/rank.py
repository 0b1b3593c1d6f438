"""One process of the random job: record random values under every reduction, and write down what was recorded.

    python -m tests.e2e.rank SEED FOLDER [STEPS PAUSE]

The role and the rank come from the environment, as from a launcher. Which metrics are recorded at a step, how often,
with which attributes and on which axis is random and different on every rank.

The ranks of a role begin together, as after `init_process_group`: one that comes more than 3 s after the others is
late, and its values are amendments.
"""

from __future__ import annotations

import json
import math
import os
import random
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import otel_ml
from tests.e2e.oracle import Recorded

STEPS = 15
NOTHING: Mapping[str, Any] = {}


@dataclass(frozen=True)
class Metric:
    name: str
    across: tuple[str, ...]
    within: str | None = None
    over: str | None = None
    weighted: bool = False
    tasks: Sequence[str] = ()
    alone: bool = False
    """Recorded by one rank a step: the newest of values that were recorded at the same time is not defined."""
    special: Sequence[float] = field(default=())
    signed: bool = False

    @property
    def options(self) -> dict[str, Any]:
        named = {"reduce": self.across, "within": self.within, "over": self.over}
        return {key: value for key, value in named.items() if value is not None}

    @property
    def reduction(self) -> str:
        within = f"{self.within}>" if self.within else ""
        return within + ",".join(self.across) + (f"@{self.over}" if self.over else "")


METRICS = [
    *(Metric(f"plain/{one}", (one,)) for one in ("mean", "sum", "min", "max", "count", "std")),
    *(Metric(f"which/{one}", (one,)) for one in ("rank", "argmax", "argmin")),
    *(Metric(f"quantile/{one}", (one,)) for one in ("p50", "p90", "p95", "p99", "p99.9")),
    Metric("quantile/signed", ("p10",), signed=True),
    Metric("histogram/plain", ("histogram",)),
    Metric("histogram/signed", ("mean", "histogram"), signed=True),
    Metric("histogram/within", ("histogram",), within="sum"),
    Metric("histogram/special", ("histogram", "count"), special=(math.nan, math.inf, -math.inf)),
    *(Metric(f"order/{one}", (one,), alone=True) for one in ("last", "first")),
    Metric("order/both", ("last", "first", "mean"), alone=True),
    Metric("order/spread", ("p90", "first"), alone=True),
    *(Metric(f"within/{one}", ("max", "mean"), within=one) for one in ("sum", "mean", "min", "max", "count", "std")),
    *(Metric(f"within/{one}", ("sum",), within=one) for one in ("last", "first")),
    Metric("several", ("mean", "min", "max", "sum", "count", "std", "rank")),
    Metric("per/rank", ("rank", "mean"), within="sum"),
    Metric("weighted", ("mean",), weighted=True),
    Metric("by_task", ("mean", "count"), tasks=("math", "code", "chat")),
    Metric("replicas", ("sum",), over="dp"),
    Metric("special", ("mean", "sum", "max"), special=(math.nan, math.inf, -math.inf)),
    Metric("strange name@5", ("sum",)),
    Metric("größe//x", ("max",)),
]  # fmt: skip


class Process:
    """Records through otel_ml, and writes down what it recorded."""

    def __init__(self, seed: int, role: str, rank: int, world_size: int) -> None:
        self.random = random.Random(f"{seed}/{role}/{rank}")
        self.role, self.rank, self.world_size = role, rank, world_size
        self.topology = {"dp": rank // 2}  # two ranks each hold a copy of the same
        self.written: list[Recorded] = []

    def record_some(self, axis: str, step: int, where: Mapping[str, Any] = NOTHING) -> None:
        for metric in self.random.sample(METRICS, k=len(METRICS) // 2):
            if not metric.alone or step % self.world_size == self.rank:
                for _ in range(self.random.randint(1, 4)):
                    self.record(metric, axis, step, where)

    def record(self, metric: Metric, axis: str, step: int, where: Mapping[str, Any]) -> None:
        value = self.value_of(metric)
        weight = self.random.choice([0.5, 1.0, 3.0]) if metric.weighted else None
        attributes = {"task": self.random.choice(metric.tasks)} if metric.tasks else {}
        optional = {"weight": weight, "attributes": attributes or None}
        given = {key: one for key, one in optional.items() if one is not None}
        otel_ml.log({metric.name: value}, **metric.options, **given, **where)
        self.written.append(
            Recorded(
                self.role, self.rank, axis, step, metric.name, value, metric.reduction, order=len(self.written),
                attributes=attributes, weight=weight, time=time.time(), topology=self.topology,
            )
        )  # fmt: skip

    def value_of(self, metric: Metric) -> float:
        if metric.special and self.random.random() < 0.2:
            return self.random.choice(metric.special)
        sign = self.random.choice([-1, 1]) if metric.signed else 1
        return sign * self.random.uniform(0.5, 2.0) * 10 ** self.random.randint(-2, 3)

    def run(self, steps: int, pause: float) -> None:
        for step in range(steps):
            otel_ml.set_step(step)
            print("step", step, flush=True)
            self.record_some("step", step)
            with otel_ml.step(step // 2, axis="rollout"):
                self.record_some("rollout", step // 2)
            if step % 5 == 0:
                self.record_some("eval", step, {"step": step, "axis": "eval"})
            time.sleep(pause)


def written_in(folder: Path) -> Iterator[Recorded]:
    """Return everything that the processes of a job wrote down."""
    for file in sorted(folder.glob("*.json")):
        yield from (Recorded(**record) for record in json.loads(file.read_text()))


def meet(folder: Path, role: str, rank: int, world_size: int) -> None:
    """Wait until every rank of the role is here, or as many as MEET says."""
    world_size = int(os.environ.get("MEET", world_size))
    (folder / f"{role}-{rank}.here").touch()
    while len(list(folder.glob(f"{role}-*.here"))) < world_size:
        time.sleep(0.01)  # between two looks


def main() -> None:
    seed, folder = int(sys.argv[1]), Path(sys.argv[2])
    steps, pause = (int(sys.argv[3]), float(sys.argv[4])) if len(sys.argv) > 3 else (STEPS, 0.0)
    process = Process(seed, os.environ["OTEL_SERVICE_NAME"], int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    with otel_ml.init("oracle", topology={"dp": (process.topology["dp"], 3)}):
        meet(folder, process.role, process.rank, process.world_size)
        process.run(steps, pause)
    file = folder / f"{process.role}-{process.rank}.json"
    file.write_text(json.dumps([vars(record) for record in process.written]))


if __name__ == "__main__":
    main()
