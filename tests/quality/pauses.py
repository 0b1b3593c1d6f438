"""Jobs that stand still now and then: for checkpoints, for data, for a garbage collector."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import numpy.typing as npt

from tests.quality.truths import STEPS, Job, Pausing, Slow, Truth

__all__ = ["KINDS_WITH_PAUSES"]

Floats = npt.NDArray[np.float64]

_APART = 20
"""Steps from one stall to the next, at most: three of them make a finding, and after 32 without one it is over."""


def _checkpoints(kind: str, seed: int, draw: np.random.Generator) -> Job:
    """Every so many steps all ranks write a checkpoint, or rank 0 does, and the others wait for it in a barrier."""
    ranks = int(draw.choice([4, 8, 16]))
    at = _now_and_then(draw)
    is_of_all = "of rank 0" not in kind
    took = float(draw.uniform(1.0, 12.0))
    phases = ("data", "forward", "backward", "all_reduce", "checkpoint", "barrier")
    slow: tuple[Slow, ...] = ()
    if "one slow" in kind:
        slow = (Slow(int(draw.integers(ranks)), ("backward",), float(draw.uniform(0.2, 0.8)), 25, 60),)
    place = "nobody" if is_of_all else "rank 0"
    truth: tuple[Truth, ...] = (Pausing(place, ("checkpoint",), at[0], _end(at)), *slow)

    def seconds() -> Iterator[Floats]:
        of = np.random.default_rng(seed + 1)
        for step in range(STEPS):
            work = np.array([0.3, 1.0, 2.0]) * of.lognormal(0.0, 0.02, (ranks, 3))
            for one in slow:
                work[one.rank, 2] *= 1 + one.at(step)
            total = work.sum(axis=1)
            writes = np.full(ranks, 0.001 if step in at else np.nan)
            if step in at:
                writes[: None if is_of_all else 1] = took * of.lognormal(0.0, 0.05, ranks if is_of_all else 1)
            yield np.column_stack((work, total.max() - total + 0.1, writes, writes.max() - writes))

    return Job(kind, seed, phases, (), truth, seconds)


def _outside_of_timers(kind: str, seed: int, draw: np.random.Generator) -> Job:
    """A framework times whole steps, and evaluates between two of them every so often."""
    ranks = int(draw.choice([2, 4, 8]))
    at = _now_and_then(draw)
    took = float(draw.uniform(1.0, 10.0))

    def seconds() -> Iterator[Floats]:
        of = np.random.default_rng(seed + 1)
        for step in range(STEPS):
            own = 0.02 * of.lognormal(0.0, 0.2, ranks) + took * (step in at) * of.lognormal(0.0, 0.02, ranks)
            forward, backward = (usual * of.lognormal(0.0, 0.01, ranks) for usual in (1.0, 2.0))
            begun = own + forward
            backward = (begun + backward).max() + 0.05 - begun
            yield np.column_stack((own, forward, backward, own + forward + backward))

    phases = ("untimed", "forward", "backward", "step")
    return Job(kind, seed, phases, (), (Pausing("nobody", ("untimed",), at[0], _end(at)),), seconds)


def _stalls(kind: str, seed: int, draw: np.random.Generator) -> Job:
    """Now and then the loader of some rank, another one each time, has no batch ready, or a garbage collector runs."""
    ranks = int(draw.choice([4, 8, 16]))
    apart = np.minimum(draw.geometric(draw.uniform(0.1, 0.25), 40), _APART)
    at = (10 + np.cumsum(apart)).tolist()
    at = [step for step in at if step < STEPS]
    who, took = draw.integers(ranks, size=STEPS), draw.uniform(1.5, 8.0, STEPS)
    is_data = "data" in kind
    column = np.zeros(STEPS, dtype=int) if is_data else draw.integers(1, 3, STEPS)
    phases = ("data", "forward", "backward", "all_reduce")
    named = ("data",) if is_data else ("", "forward", "backward")
    truth = (Pausing("nobody", named, at[0], STEPS),)

    def seconds() -> Iterator[Floats]:
        of = np.random.default_rng(seed + 1)
        for step in range(STEPS):
            work = np.array([0.3, 1.0, 2.0]) * of.lognormal(0.0, 0.02, (ranks, 3))
            if step in at:
                work[who[step], column[step]] += took[step]
            total = work.sum(axis=1)
            yield np.column_stack((work, total.max() - total + 0.1))

    return Job(kind, seed, phases, (), truth, seconds)


def _now_and_then(draw: np.random.Generator) -> range:
    """Return the steps of pauses that go on to the end of the job, or of six of them."""
    first, every = int(draw.integers(10, 15)), int(draw.integers(4, 7))
    return range(first, STEPS if draw.random() < 0.5 else first + 6 * every, every)


def _end(at: range) -> int:
    return STEPS if at.stop == STEPS else at[-1] + 1


KINDS_WITH_PAUSES: Mapping[str, Callable[[str, int, np.random.Generator], Job]] = {
    "checkpoints": _checkpoints,
    "checkpoints of rank 0": _checkpoints,
    "checkpoints, one slow": _checkpoints,
    "pauses outside of timers": _outside_of_timers,
    "data that is late": _stalls,
    "garbage collectors": _stalls,
}
