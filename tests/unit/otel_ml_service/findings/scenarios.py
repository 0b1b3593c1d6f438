"""Seeded jobs with injected slow-downs: every rank's timers step by step, and what is to be found in them.

A step is `data`, `forward`, `backward`, `all_reduce` and `optimizer`, with `step` around them; in `all_reduce` every
rank waits for the slowest one, as in synchronous training. Times scatter (log-normal), the first two steps are warm-up.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

PHASES = ("data", "forward", "backward", "all_reduce", "optimizer", "step")
USUAL = np.array([0.5, 1.0, 2.0, 0.1, 0.2])
STEPS = 80
WITHIN = 10
"""Steps within which a slow-down has to be found."""

KINDS = ("none", "constant", "drift", "bursts", "intermittent", "two culprits")


@dataclass(frozen=True)
class SlowDown:
    """One rank in one phase, from `first` to before `end`; by `share`, growing from nothing over `ramp` steps."""

    rank: int
    phase: str
    first: int
    end: int
    share: float
    ramp: int = 0

    def at(self, step: int) -> float:
        if not self.first <= step < self.end:
            return 0.0
        return self.share * min(1.0, (step - self.first + 1) / self.ramp) if self.ramp else self.share

    @property
    def onset(self) -> int:
        """The first step at which it is at least a tenth."""
        return next(step for step in range(self.first, self.end) if self.at(step) >= 0.0999)


@dataclass(frozen=True)
class Scenario:
    seed: int
    kind: str
    ranks: int
    scatter: float
    injected: tuple[SlowDown, ...]
    spikes: float = 0.0
    generator: np.random.Generator = field(compare=False, default_factory=np.random.default_rng)

    def steps(self) -> Iterator[np.ndarray]:
        """Yield seconds [ranks, phases] of each step."""
        draw = self.generator
        for step in range(STEPS):
            seconds = USUAL * draw.lognormal(0.0, self.scatter, (self.ranks, len(USUAL)))
            if step < 2:
                seconds *= draw.uniform(1.0, 3.0, seconds.shape)
            for slow in self.injected:
                seconds[slow.rank, PHASES.index(slow.phase)] *= 1 + slow.at(step)
            hit = draw.random(seconds.shape) < self.spikes
            seconds[hit] *= draw.uniform(1.5, 8.0, int(hit.sum()))
            before = seconds[:, :3].sum(axis=1)
            seconds[:, 3] += before.max() - before
            yield np.column_stack((seconds, seconds.sum(axis=1)))


def scenario(seed: int) -> Scenario:
    """Return the job of a seed; the kinds take turns."""
    draw = np.random.default_rng(seed)
    kind = KINDS[seed % len(KINDS)]
    ranks = int(draw.choice([2, 4, 8, 16] if kind != "two culprits" else [5, 8, 16]))
    culprits = draw.permutation(ranks)
    phase = str(draw.choice(PHASES[:3]))
    first = int(draw.integers(10, 30))
    share = float(draw.uniform(0.10, 0.80))
    slow = SlowDown(int(culprits[0]), phase, first, STEPS, share)
    injected = {
        "none": (),
        "bursts": (),
        "constant": (slow,),
        "drift": (SlowDown(slow.rank, phase, first, STEPS, max(share, 0.3), ramp=int(draw.integers(10, 40))),),
        "intermittent": (
            SlowDown(slow.rank, phase, first, first + 15, share),
            SlowDown(slow.rank, phase, first + 32, first + 47, share),
        ),
        "two culprits": (slow, SlowDown(int(culprits[1]), str(draw.choice(PHASES[:3])), first + 8, STEPS, share)),
    }[kind]
    scatter = float(draw.uniform(0.005, 0.03))
    return Scenario(seed, kind, ranks, scatter, injected, 0.01 if kind == "bursts" else 0.001, draw)
