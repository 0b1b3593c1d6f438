"""Whose samples make a role train on old ones, and that nobody is accused who does not."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

import pytest

from otel_ml_exporters.records import StepRecord
from otel_ml_service.findings.stale_producers import Consumed, Stale, StaleProducers
from tests.strategies import Rank, Service

Step = Mapping[tuple[str, int], Consumed]


def found_in(steps: Sequence[Step]) -> list[Stale]:
    watch = StaleProducers()
    return [found for number, step in enumerate(steps) if (found := watch.step(number, step)) is not None]


def step_of(samples: Sequence[float], behind: Sequence[float]) -> Step:
    return {
        ("generator", rank): Consumed(*pair) for rank, pair in enumerate(zip(samples, behind, strict=True)) if pair[0]
    }


def test_one_that_pulls_weights_too_seldom_is_named_with_what_it_costs() -> None:
    [found] = found_in([step_of([16, 4, 16], [1, 3, 1 + step % 12]) for step in range(48)])

    assert (found.role, found.rank, found.is_over) == ("generator", 2, False)
    assert found.behind > 2 * found.others
    assert found.excess == pytest.approx(
        (36 * 0 + 16 * found.behind + 20 * found.others) / 36 - found.others, rel=1e-9
    ), "what the mean of all would be less without it"


def test_it_is_over_when_it_is_as_fresh_as_the_others() -> None:
    steps = [step_of([16, 16, 16], [1, 1, 9 if step < 20 else 1]) for step in range(60)]

    began, over = found_in(steps)

    assert (began.rank, began.since, over.is_over) == (2, 0, True)
    assert 20 <= over.last <= 20 + 16 + 8


def test_one_of_whose_samples_few_are_used_is_not_named_though_they_are_old() -> None:
    assert found_in([step_of([40, 40, 1], [1, 1, 12]) for _ in range(60)]) == []


def test_a_single_producer_and_one_that_is_equal_to_others_are_not_named() -> None:
    assert found_in([step_of([16], [30]) for _ in range(60)]) == []
    assert found_in([step_of([16, 16], [8, 8]) for _ in range(60)]) == []
    assert found_in([step_of([16, 16], [0.2, 0.9]) for _ in range(60)]) == [], "below a version"


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize(
    "draw",
    [lambda rng: rng.uniform(0, 8), lambda rng: rng.expovariate(0.3), lambda rng: float(rng.randrange(12))],
    ids=["uniform", "heavy-tailed", "sawtooth"],
)
def test_producers_of_the_same_kind_are_not_named(draw: Callable[[random.Random], float], seed: int) -> None:
    rng = random.Random(seed)
    steps = [step_of([rng.randint(8, 24) for _ in range(4)], [draw(rng) for _ in range(4)]) for _ in range(500)]

    assert found_in(steps) == []


def test_it_is_in_the_rows_and_said_once() -> None:
    service, rank = Service(), Rank(0)
    for step in range(12):
        sent = {
            "consumed/samples": 32.0,
            "consumed/samples/generator/0": 16.0,
            "consumed/samples/generator/1": 16.0,
            "consumed/staleness": 5.0,
            "consumed/staleness/generator/0": 1.0,
            "consumed/staleness/generator/1": 9.0,
        }
        service.take(rank.step(step, sent, "mean"))
        service.wait(1, rank)

    rows = {record.step: record.values for record in service.records if isinstance(record, StepRecord)}
    assert "otel_ml/stale/generator" not in rows[5]
    assert rows[9]["otel_ml/stale/generator"] == 4.0
    assert rows[9]["otel_ml/stale/generator/rank"] == 1.0
    [said] = [sentence for sentence in service.notices if "stale" in sentence]
    assert "Rank 1 of role 'generator' is stale since step 0" in said
    assert "4.0 versions newer" in said


def test_when_it_is_over_that_is_in_one_row_and_said() -> None:
    service, rank = Service(), Rank(0)
    for step in range(60):
        behind = 9.0 if step < 12 else 1.0
        sent = {"consumed/staleness": (1.0 + behind) / 2}
        for producer, versions in enumerate((1.0, behind)):
            sent |= {
                f"consumed/samples/generator/{producer}": 16.0,
                f"consumed/staleness/generator/{producer}": versions,
            }
        service.take(rank.step(step, sent, "mean"))
        service.wait(1, rank)

    shown = {
        step: row["otel_ml/stale/generator"]
        for step, row in service.rows(own=True).items()
        if "otel_ml/stale/generator" in row
    }
    assert [step for step, excess in shown.items() if not excess] == [last := max(shown)]
    [_, over] = [sentence for sentence in service.notices if "stale" in sentence]
    assert f"Rank 1 of role 'generator' is no longer stale for role 'trainer': from step 0 to {last}." in over


@pytest.mark.parametrize("samples", [0.0, -16.0, float("nan")])
def test_what_a_program_records_under_these_names_and_is_no_count_of_samples_tells_nothing(samples: float) -> None:
    service, rank = Service(), Rank(0)
    for step in range(12):
        sent = {"consumed/staleness": 5.0}
        for producer, count in enumerate((16.0, samples)):
            sent |= {f"consumed/samples/generator/{producer}": count, f"consumed/staleness/generator/{producer}": 5.0}
        service.take(rank.step(step, sent, "mean"))
        service.wait(1, rank)

    rows = [record for record in service.records if isinstance(record, StepRecord)]
    assert len(rows) >= 10
    assert not [name for row in rows for name in row.values if "stale/" in name]
