"""What the demo's summary finds in what was recorded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from otel_ml_exporters.records import Params, Record, StepRecord, Table
from otel_ml_service.demo.summary import Findings, findings
from otel_ml_service.why.facts import Slow

COLUMNS = ("level", "kind", "rank", "phase", "since", "until", "slowdown", "s per step", "s in all",
           "span of", "at step", "span", "trace", "place", "s saved per step")  # fmt: skip


def recorded(
    accuracies: Sequence[float] = (0.5, 0.9),
    samples: Mapping[int, float] = {},
    more: Sequence[Record] = (),
    params: Mapping[str, object] = {"ranks": 4, "steps": 3, "batch_size": 32},
) -> Findings:
    rows: list[Record] = [Params(1, 1.0, params)]  # type: ignore[arg-type]
    for step in range(3):
        values = {"loss": 1.0, "samples": samples.get(step, 128.0)}
        rows.append(StepRecord(len(rows) + 1, "trainer", "step", step, 0, 2.0 + step, values))
    for step, accuracy in enumerate(accuracies):
        values = {"evaluator/eval/accuracy": accuracy}
        rows.append(StepRecord(len(rows) + 1, "evaluator", "eval", step, 0, 5.0, values))
    return findings([*rows, *more])


def test_a_demo_that_learned_and_lost_nothing_is_good() -> None:
    found = recorded()

    assert (found.ranks, found.steps, found.accuracy, found.evaluations) == (4, 3, 0.9, 2)
    assert (found.incomplete, found.lost, found.corrected, found.slow) == ([], {}, 0, None)
    assert found.is_complete
    assert found.is_good


@pytest.mark.parametrize(
    ("accuracies", "is_good"), [((), False), ((0.95, 0.89), False), ((0.5, 0.9), True), ((0.91,), True)]
)
def test_it_learned_where_the_last_model_knows_9_digits_of_10(accuracies: Sequence[float], is_good: bool) -> None:
    found = recorded(accuracies)

    assert found.is_complete
    assert found.is_good is is_good
    assert found.accuracy == (accuracies[-1] if accuracies else None)


def test_a_step_without_the_samples_of_every_rank_is_incomplete() -> None:
    found = recorded(samples={1: 96.0})

    assert found.incomplete == [1]
    assert not found.is_complete
    assert not found.is_good


@pytest.mark.parametrize(
    ("name", "lost"),
    [("otel_ml/dropped/queue", 3.0), ("otel_ml/late", 3.0), ("otel_ml/dropped/queue", 0.0), ("otel_ml/received", 3.0)],
)
def test_what_was_counted_as_lost_is_told_with_its_newest_count(name: str, lost: float) -> None:
    counted = [StepRecord(20 + at, "", "time", at, 0, 9.0 + at, {name: value}) for at, value in ((3, 7.0), (4, lost))]

    found = recorded(more=counted)

    is_lost = lost > 0 and name != "otel_ml/received"
    assert found.lost == ({name: lost} if is_lost else {})
    assert found.is_complete is not is_lost


def test_corrections_are_counted() -> None:
    found = recorded(more=[StepRecord(20, "trainer", "step", 1, 0, 9.0, {"loss": 2.0}, amendment=True)])

    assert found.corrected == 1
    assert found.is_good


def test_who_made_the_trainers_slow_is_the_one_that_the_job_found() -> None:
    other = ("warning", "slow", "rank 0", "forward", 0, 1, 0.5, 0.1, 0.3, "", None, "", "", "rank 0", None)
    data = ("warning", "shape", "", "forward", 0, 2, 0.5, 0.1, 0.25, "", None, "", "", "nobody", None)
    slow = ("warning", "slow", "rank 2", "forward", 1, 2, 0.5, 0.1, 0.2, "", None, "", "", "rank 2", 0.05)
    tables = [
        Table(20, 9.0, "evaluator/eval/otel_ml/findings", "eval", 1, COLUMNS, (other,)),
        Table(21, 9.0, "otel_ml/findings", "step", 2, COLUMNS, (data, slow)),
    ]

    found = recorded(more=tables).slow

    assert isinstance(found, Slow)
    assert (found.place, found.who, found.phase, found.since, found.last) == ("", "rank 2", "forward", 1, 2)


@pytest.mark.parametrize("params", [{}, {"ranks": "four", "steps": None, "batch_size": [32]}])
def test_a_run_without_the_parameters_of_the_demo_has_no_ranks_and_no_steps(params: Mapping[str, object]) -> None:
    found = recorded(params=params)

    assert (found.ranks, found.steps, found.incomplete) == (0, 0, [])
