"""Seeded jobs of which it is known what is the matter: what every rank's timers say, step by step.

Each job is simulated from what ranks do: they compute, hand on, and wait for each other as frameworks have them. Timers
are then what these frameworks time. Nothing here knows how slow ranks are found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import numpy.typing as npt

from tests.quality.pauses import KINDS_WITH_PAUSES
from tests.quality.pipelines import interleaved, one_forward_one_backward, timers_of
from tests.quality.places import KINDS_WITH_PLACES
from tests.quality.truths import STEPS, Job, Slow, Truth, Uneven, Varying

__all__ = ["KINDS", "STEPS", "Job", "job"]

Floats = npt.NDArray[np.float64]


def job(seed: int) -> Job:
    """Return the job of a seed; the kinds take turns."""
    kind = list(KINDS)[seed % len(KINDS)]
    return KINDS[kind](kind, seed, np.random.default_rng(seed))


def _culprit(draw: np.random.Generator, ranks: int, phases: tuple[str, ...], least: float = 0.15) -> Slow:
    first = int(draw.integers(10, 30))
    end = first + int(draw.integers(20, 45))
    return Slow(int(draw.integers(ranks)), phases, float(draw.uniform(least, 0.8)), first, end)


def _longer(slow: tuple[Slow, ...], phase: str, ranks: int, step: int) -> Floats:
    factors = np.ones(ranks)
    for one in slow:
        if phase in one.phases:
            factors[one.rank] += one.at(step)
    return factors


def _in_line(kind: str, seed: int, draw: np.random.Generator) -> Job:
    """Data-parallel: forward, backward, and an all-reduce in which all wait for the last one."""
    ranks = int(draw.choice([2, 4, 8, 16]))
    scatter = float(draw.uniform(0.005, 0.03))
    slow = () if "nobody" in kind else (_culprit(draw, ranks, (str(draw.choice(["data", "forward", "backward"])),)),)
    if kind == "two culprits":
        ranks = int(draw.choice([6, 8, 16]))
        one, other = draw.permutation(ranks)[:2]
        slow = tuple(
            Slow(int(rank), (str(phase),), float(draw.uniform(0.2, 0.8)), 15, STEPS)
            for rank, phase in zip((one, other), draw.choice(["forward", "backward"], 2), strict=True)
        )
    phases = ("data", "forward", "backward", "all_reduce", "optimizer")

    def seconds() -> Iterator[Floats]:
        of = np.random.default_rng(seed + 1)
        for step in range(STEPS):
            table = np.array([0.5, 1.0, 2.0, 0.1, 0.2]) * of.lognormal(0.0, scatter, (ranks, 5))
            for column, phase in enumerate(phases):
                table[:, column] *= _longer(slow, phase, ranks, step)
            before = table[:, :3].sum(axis=1)
            table[:, 3] += before.max() - before
            yield table

    return Job(kind, seed, phases, (), slow, seconds)


def _overlapped(kind: str, seed: int, draw: np.random.Generator) -> Job:
    """DDP: gradients are reduced while `backward` runs, which ends with waiting for the last rank."""
    ranks = int(draw.choice([2, 4, 8, 16]))
    scatter = float(draw.uniform(0.005, 0.03))
    slow = () if "nobody" in kind else (_culprit(draw, ranks, ("forward",)),)
    phases = ("data", "forward", "backward", "optimizer")

    def seconds() -> Iterator[Floats]:
        of = np.random.default_rng(seed + 1)
        for step in range(STEPS):
            table = np.array([0.3, 1.0, 2.0, 0.2]) * of.lognormal(0.0, scatter, (ranks, 4))
            table[:, 1] *= _longer(slow, "forward", ranks, step)
            begun = table[:, :2].sum(axis=1)
            table[:, 2] = np.maximum(begun + table[:, 2], (begun + table[:, 2]).max() + 0.05) - begun
            yield table

    return Job(kind, seed, phases, (), slow, seconds)


def _between_steps(kind: str, seed: int, draw: np.random.Generator) -> Job:
    """DDP with a `step` timer: one rank does something outside of every timer, the others wait in `backward`."""
    ranks = int(draw.choice([2, 4, 8]))
    slow = (Slow(int(draw.integers(ranks)), ("untimed",), float(draw.uniform(0.3, 1.0)), 15, STEPS),)
    phases = ("untimed", "forward", "backward", "step")

    def seconds() -> Iterator[Floats]:
        of = np.random.default_rng(seed + 1)
        for step in range(STEPS):
            own = 0.02 * of.lognormal(0.0, 0.2, ranks)
            own[slow[0].rank] += slow[0].at(step)
            forward, backward = (usual * of.lognormal(0.0, 0.01, ranks) for usual in (1.0, 2.0))
            begun = own + forward
            backward = (begun + backward).max() + 0.05 - begun
            yield np.column_stack((own, forward, backward, own + forward + backward))

    return Job(kind, seed, phases, (), slow, seconds)


def _sequences(kind: str, seed: int, draw: np.random.Generator) -> Job:
    """The cost of a step goes with the lengths of its sequences, which have a heavy tail: for that nobody is slow."""
    ranks = int(draw.choice([8, 16, 32]))
    tail = float(draw.uniform(0.1, 0.7))
    slow: tuple[Slow, ...] = ()
    if "one slow" in kind:
        tail = float(draw.uniform(0.08, 0.15))
        slow = (_culprit(draw, ranks, ("forward", "backward"), least=0.4),)
    truth: tuple[Truth, ...] = (Varying(), *slow)
    phases = ("forward", "backward", "all_reduce")

    def seconds() -> Iterator[Floats]:
        of = np.random.default_rng(seed + 1)
        for step in range(STEPS):
            if kind == "squared lengths":
                work = 0.5 + 0.5 * (of.pareto(2.0 + tail, (ranks, 8)) ** 2).clip(0, 20).mean(axis=1)
            else:
                work = of.lognormal(0.0, tail, ranks) * _longer(slow, "forward", ranks, step)
            yield np.column_stack((work / 3, work * 2 / 3, work.max() - work + 0.05))

    return Job(kind, seed, phases, (), truth, seconds)


def _experts(kind: str, seed: int, draw: np.random.Generator) -> Job:
    """Routers send others more at every step, and an all-to-all waits for the fullest: nobody is slow for that."""
    ranks = int(draw.choice([8, 16]))
    uneven = float(draw.uniform(0.1, 0.5))
    slow = (_culprit(draw, ranks, ("attention",)),) if "one slow" in kind else ()
    phases = ("attention", "experts", "all_to_all", "all_reduce")

    def seconds() -> Iterator[Floats]:
        of = np.random.default_rng(seed + 1)
        popular = of.dirichlet(np.full(ranks, 1 / uneven**2))
        for step in range(STEPS):
            popular = 0.7 * popular + 0.3 * of.dirichlet(np.full(ranks, 1 / uneven**2))
            attention = of.lognormal(0.0, 0.01, ranks) * _longer(slow, "attention", ranks, step)
            experts = ranks * popular * of.lognormal(0.0, 0.02, ranks)
            waits = (attention + experts).max() - attention - experts + 0.05
            yield np.column_stack((attention, experts, waits, np.full(ranks, 0.1)))

    return Job(kind, seed, phases, (), slow, seconds)


def _pauses(kind: str, seed: int, draw: np.random.Generator) -> Job:
    """Nobody is slow: each rank stands still now and then, for a collector of garbage or a file."""
    ranks = int(draw.choice([4, 8, 16]))
    often = float(draw.uniform(0.01, 0.05))
    phases = ("forward", "backward", "all_reduce")

    def seconds() -> Iterator[Floats]:
        of = np.random.default_rng(seed + 1)
        for _ in range(STEPS):
            work = of.lognormal(0.0, 0.01, ranks)
            work[of.random(ranks) < often] += of.uniform(0.2, 2.0)
            yield np.column_stack((work / 3, work * 2 / 3, work.max() - work + 0.05))

    return Job(kind, seed, phases, (), (), seconds)


def _pipeline(kind: str, seed: int, draw: np.random.Generator) -> Job:
    """Stages that hand on micro-batches, as Megatron times them; replicas meet in a reduce-scatter."""
    stages, replicas = int(draw.choice([2, 4])), int(draw.choice([2, 4]))
    ranks = stages * replicas
    last = float(draw.uniform(1.1, 1.6)) if "last stage" in kind else 1.0
    computes = ("forward-compute", "backward-compute")
    slow: tuple[Slow, ...] = ()
    uneven = (Uneven(stages - 1, last - 1),) if last > 1 else ()
    if "one slow" in kind:
        slow = (_culprit(draw, ranks, computes, least=0.2),)
    elif "two culprits" in kind:
        stages, replicas, ranks = 4, 4, 16
        one, other = draw.permutation(ranks)[:2]
        slow = tuple(Slow(int(rank), computes, float(draw.uniform(0.3, 0.8)), 15, STEPS) for rank in (one, other))
    elif "a slow stage" in kind:
        first = int(draw.integers(10, 30))
        end = first + int(draw.integers(20, 45))
        uneven = (Uneven(int(draw.integers(stages)), float(draw.uniform(0.2, 0.8)), first, end),)
    tail = float(draw.uniform(0.08, 0.3)) if "lengths" in kind else 0.0
    schedule = interleaved if "interleaved" in kind else one_forward_one_backward

    def seconds() -> Iterator[Floats]:
        of = np.random.default_rng(seed + 1)
        for step in range(STEPS):
            forward = 0.1 * (1 + 0.01 * of.standard_normal((replicas, stages)))
            for one in uneven:
                forward[:, one.stage] *= 1 + one.at(step)
            if tail:
                forward *= of.lognormal(0.0, tail, (replicas, 1))
            forward *= _longer(slow, "forward-compute", ranks, step).reshape(replicas, stages)
            yield timers_of(schedule, forward, 2 * forward, micro_batches=8)

    phases = ("forward-recv", "forward-compute", "backward-recv", "backward-compute", "grads-reduce-scatter")
    where = tuple(rank % stages for rank in range(ranks))
    says_stages = draw.random() < 0.7 or "a slow stage" in kind
    truth: tuple[Truth, ...] = (*slow, *(uneven if says_stages else ()), *((Varying(),) if tail else ()))
    return Job(kind, seed, phases, where if says_stages else (), truth, seconds)


KINDS: Mapping[str, Callable[[str, int, np.random.Generator], Job]] = {
    "in line, one slow": _in_line,
    "in line, nobody": _in_line,
    "two culprits": _in_line,
    "overlapped communication": _overlapped,
    "between steps": _between_steps,
    "lengths of sequences": _sequences,
    "squared lengths": _sequences,
    "experts": _experts,
    "pauses": _pauses,
    "1F1B, one slow": _pipeline,
    "1F1B, nobody": _pipeline,
    "1F1B, a longer last stage": _pipeline,
    "interleaved, one slow": _pipeline,
    "interleaved, nobody": _pipeline,
    "1F1B, a slow stage": _pipeline,
    "interleaved, a slow stage": _pipeline,
    "1F1B, two culprits": _pipeline,
    "1F1B, lengths of sequences": _pipeline,
    "lengths of sequences, one slow": _sequences,
    "experts, one slow": _experts,
    "overlapped communication, nobody": _overlapped,
    **KINDS_WITH_PAUSES,
    **KINDS_WITH_PLACES,
}
