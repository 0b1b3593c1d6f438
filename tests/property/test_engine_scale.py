"""64 simulated ranks × 100 metrics × 50 steps, shuffled, re-split, 10 % duplicated, reduce exactly."""

from __future__ import annotations

import random

import numpy as np
import pytest

from otel_ml_service.aggregation.observation import Fragment, Observation
from tests.strategies import Rank, Service, split

RANKS, METRICS, STEPS = 64, 100, 50
NAMES = [f"m{number}" for number in range(METRICS)]


def job(values: np.ndarray) -> list[Observation]:
    """Return what all ranks send, in the order they send it."""
    ranks = [Rank(rank, world_size=RANKS) for rank in range(RANKS)]
    sent: list[Observation] = []
    for step in range(STEPS):
        for rank, source in enumerate(ranks):
            sent += source.step(step, dict(zip(NAMES, values[step, rank].tolist(), strict=True)))
    for source in ranks:
        sent += source.bye()
    return sent


@pytest.mark.timeout(120)
@pytest.mark.feature("F3", "better", "in any order, split or doubled on the way; the deviation is exact too")
def test_any_order_splits_and_duplicates_give_the_exact_means() -> None:
    rng = random.Random(7)
    values = np.random.default_rng(7).integers(-1000, 1000, (STEPS, RANKS, METRICS)).astype(float)
    service = Service()
    arrived: list[Observation] = []
    for observation in job(values):
        is_split = isinstance(observation, Fragment) and rng.random() < 0.2
        arrived += split(observation, rng.randrange(1, METRICS)) if is_split else [observation]  # type: ignore[arg-type]
    arrived += rng.sample(arrived, len(arrived) // 10)
    rng.shuffle(arrived)

    for start in range(0, len(arrived), 500):
        service.take(arrived[start : start + 500])

    exact = values.sum(axis=1) / RANKS
    assert {step: [row[name] for name in NAMES] for step, row in service.rows().items()} == {
        step: exact[step].tolist() for step in range(STEPS)
    }
    assert service.amendments == 0
    assert [record.step for record in service.steps()] == list(range(STEPS))
    assert service.engine.status.state == "finished"
    counts = service.engine.status.counts
    assert counts.received == counts.closed + counts.duplicate
