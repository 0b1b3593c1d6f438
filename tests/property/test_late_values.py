"""Values that come at any distance after their step closed, against an oracle that folds everything at the end."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field

import pytest

from otel_ml_service.aggregation.settings import EngineSettings
from tests.strategies import Rank, Service

STEPS = 100
NAMES = "abcd"
SEEDS = [pytest.param(seed, marks=[] if seed < 5 else pytest.mark.chaos) for seed in range(40)]


@dataclass
class Job:
    """Two ranks that record, mostly in their current step, and now and then in one that has long closed."""

    service: Service
    chance: random.Random
    ranks: list[Rank] = field(default_factory=lambda: [Rank(0, world_size=2), Rank(1, world_size=2)])
    values: dict[tuple[int, str], list[float]] = field(default_factory=dict)

    def run(self) -> None:
        for step in range(STEPS):
            self.service.now += 0.1
            for rank in self.ranks:
                rank.clock = self.service.now
                for name in self.chance.sample(NAMES, self.chance.choice([1, 2, 2, 3])):
                    self.service.take(self._recorded(rank, step, name))
                self.service.take(rank.done(step))
            if self.chance.random() < 0.3:
                self._late(step)
            if self.chance.random() < 0.1:
                self.service.restart()
            if self.chance.random() < 0.05:
                self.service.wait(12, *self.ranks)
        self.service.wait(12, *self.ranks)

    def _late(self, step: int) -> None:
        rank, old = self.chance.choice(self.ranks), self.chance.randrange(step + 1)
        names = self.chance.sample(NAMES + "ef", 2)
        self.service.take(*(self._recorded(rank, old, name) for name in names))
        if self.chance.random() < 0.7:
            self.service.take(rank.done(old))

    def _recorded(self, rank: Rank, step: int, name: str) -> list[object]:
        value = float(self.chance.randrange(-100, 100))
        self.values.setdefault((step, name), []).append(value)
        return rank.record(step, {name: value})  # type: ignore[return-value]

    @property
    def oracle(self) -> dict[tuple[int, str], float]:
        return {place: math.fsum(values) / len(values) for place, values in self.values.items()}

    @property
    def found(self) -> dict[tuple[int, str], float]:
        rows = self.service.rows()
        return {(step, name): value for step, values in rows.items() for name, value in values.items()}


def done(settings: EngineSettings, seed: int) -> Job:
    job = Job(Service(settings), random.Random(seed))
    job.run()
    counts = job.service.engine.status.counts
    assert counts.received == counts.closed + counts.too_late == sum(map(len, job.values.values()))
    return job


@pytest.mark.parametrize("seed", SEEDS)
def test_what_the_disk_keeps_is_folded_as_if_it_had_come_in_time(seed: int) -> None:
    job = done(EngineSettings(retained_steps=1 + seed % 7), seed)

    assert job.service.engine.status.counts.too_late == 0
    assert job.found == pytest.approx(job.oracle)


@pytest.mark.parametrize("limits", [{"closed_bytes": 0}, {"closed_bytes": 4_000}, {"closed_s": 3.0}])
@pytest.mark.parametrize("seed", SEEDS)
def test_beyond_what_the_disk_keeps_every_new_name_lands_and_everything_else_is_counted(
    seed: int, limits: dict[str, float]
) -> None:
    job = done(EngineSettings(retained_steps=1 + seed % 7, **limits), seed)  # type: ignore[arg-type]

    too_late: dict[tuple[int, str], list[float]] = {}
    for outcome in job.service.outcomes:
        for fragment in outcome.too_late:
            for key, stats in zip(fragment.partials.series, fragment.partials.stats, strict=True):
                too_late.setdefault((fragment.step, key.name), []).append(float(stats[1]))
    assert sum(map(len, too_late.values())) == job.service.engine.status.lost.get("too_late", 0)
    expected = dict(job.values)
    for place, values in too_late.items():
        kept = list(expected[place])
        for value in values:
            kept.remove(value)
        assert kept, f"all of {place} was too late: its name was new there"
        expected[place] = kept
    assert job.found == pytest.approx({place: math.fsum(kept) / len(kept) for place, kept in expected.items()})
