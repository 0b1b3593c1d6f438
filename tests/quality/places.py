"""Jobs of many hosts and groups: a host that is slow, a tensor-parallel group that waits for one of its ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import numpy.typing as npt

from tests.quality.pipelines import one_forward_one_backward, timers_of
from tests.quality.truths import STEPS, Job, Slow, SlowPlace, Truth

__all__ = ["KINDS_WITH_PLACES"]

Floats = npt.NDArray[np.float64]


def _when(draw: np.random.Generator) -> tuple[float, int, int]:
    first = int(draw.integers(10, 30))
    return float(draw.uniform(0.2, 0.8)), first, first + int(draw.integers(20, 45))


def _hosts(kind: str, seed: int, draw: np.random.Generator) -> Job:
    """Data-parallel ranks on hosts of four or eight; all of a host are slow, or two ranks of it are."""
    count, size = int(draw.choice([2, 4, 8])), int(draw.choice([4, 8]))
    ranks = count * size
    host = int(draw.integers(count))
    of_host = tuple(range(host * size, (host + 1) * size))
    phase = str(draw.choice(["forward", "backward"]))
    where = f"host n{host}"
    slow: tuple[Slow | SlowPlace, ...] = (SlowPlace(where, of_host, (phase,), *_when(draw)),)
    if "two ranks" in kind:
        slow = tuple(Slow(rank, (phase,), *_when(np.random.default_rng(seed))) for rank in of_host[:2])
    scatter = float(draw.uniform(0.005, 0.03))

    def seconds() -> Iterator[Floats]:
        of = np.random.default_rng(seed + 1)
        for step in range(STEPS):
            work = np.array([0.5, 1.0, 2.0]) * of.lognormal(0.0, scatter, (ranks, 3))
            for one in slow:
                work[list(one.ranks), 1 + (phase == "backward")] *= 1 + one.at(step)
            total = work.sum(axis=1)
            yield np.column_stack((work, total.max() - total + 0.1))

    hosts = tuple(f"n{rank // size}" for rank in range(ranks))
    truth: tuple[Truth, ...] = slow
    return Job(kind, seed, ("data", "forward", "backward", "all_reduce"), (), truth, seconds, hosts=hosts)


def _pipeline_on_hosts(kind: str, seed: int, draw: np.random.Generator) -> Job:
    """A replica of a pipeline on each host; one host is slow in all that it computes."""
    stages, replicas = int(draw.choice([2, 4])), int(draw.choice([4, 8]))
    ranks, host = stages * replicas, int(draw.integers(replicas))
    of_host = tuple(range(host * stages, (host + 1) * stages))
    slow = SlowPlace(f"host n{host}", of_host, ("forward-compute", "backward-compute"), *_when(draw))

    def seconds() -> Iterator[Floats]:
        of = np.random.default_rng(seed + 1)
        for step in range(STEPS):
            forward = 0.1 * (1 + 0.01 * of.standard_normal((replicas, stages)))
            forward[host] *= 1 + slow.at(step)
            yield timers_of(one_forward_one_backward, forward, 2 * forward, micro_batches=8)

    phases = ("forward-recv", "forward-compute", "backward-recv", "backward-compute", "grads-reduce-scatter")
    where = tuple(rank % stages for rank in range(ranks))
    return Job(
        kind, seed, phases, where, (slow,), seconds,
        hosts=tuple(f"n{rank // stages}" for rank in range(ranks)),
        topologies=tuple({"pp": rank % stages, "dp": rank // stages} for rank in range(ranks)),
    )  # fmt: skip


def _tensor_parallel(kind: str, seed: int, draw: np.random.Generator) -> Job:
    """Ranks of a tensor-parallel group wait for each other in every layer: all are as late as the slowest of them."""
    groups, members = int(draw.choice([4, 8])), int(draw.choice([2, 4]))
    ranks, group = groups * members, int(draw.integers(groups))
    of_group = tuple(range(group * members, (group + 1) * members))
    slow = SlowPlace(f"dp {group}", of_group, ("forward", "backward"), *_when(draw))
    culprit = int(draw.integers(members))

    def seconds() -> Iterator[Floats]:
        of = np.random.default_rng(seed + 1)
        for step in range(STEPS):
            work = np.array([1.0, 2.0]) * of.lognormal(0.0, 0.01, (groups, members, 2))
            work[group, culprit] *= 1 + slow.at(step)
            both = work.max(axis=1, keepdims=True) + 0.01 * of.random((groups, members, 2))
            timed = both.reshape(ranks, 2)
            total = timed.sum(axis=1)
            yield np.column_stack((timed, total.max() - total + 0.1))

    topologies = tuple({"tp": rank % members, "dp": rank // members} for rank in range(ranks))
    hosts = tuple(f"n{rank // 8}" for rank in range(ranks))
    phases = ("forward", "backward", "all_reduce")
    return Job(kind, seed, phases, (), (slow,), seconds, hosts=hosts, topologies=topologies)


KINDS_WITH_PLACES: Mapping[str, Callable[[str, int, np.random.Generator], Job]] = {
    "a slow host": _hosts,
    "two ranks of a host": _hosts,
    "1F1B, a slow host": _pipeline_on_hosts,
    "tensor parallel, a slow group": _tensor_parallel,
}
