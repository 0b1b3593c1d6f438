"""Which rank's value made a metric NaN or infinite is in the row of its step."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pytest

from otel_ml_service.why.ask import Question, why
from otel_ml_service.why.facts import facts_of
from tests.strategies import Rank, Service
from tests.unit.otel_ml_service.aggregation.test_one_reduction import bare

ODD = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def told(row: Mapping[str, float]) -> dict[str, float]:
    return {name: value for name, value in row.items() if "nonfinite" in name}


def row_with(*values: float, reduce: str = "mean", role: str = "trainer") -> dict[str, float]:
    """Return the row of a step in which each rank recorded one value."""
    service, ranks = Service(), [Rank(number, role=role, world_size=len(values)) for number in range(len(values))]
    for rank, value in zip(ranks, values, strict=True):
        service.take(rank.step(0, {"loss": value}, reduce))
    service.take(*(rank.bye() for rank in ranks))
    return service.rows(own=True, role=role)[0]


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
@pytest.mark.parametrize("reduce", ["mean", "sum", "max", "sum>max", "mean,std", "last>mean"])
def test_the_rank_and_how_many_they_are_is_told(odd: float, reduce: str) -> None:
    row = row_with(0.5, 0.4, odd, 0.3, reduce=reduce)

    if math.isfinite(row["loss"]):  # the largest of some is a number beside -inf
        assert told(row) == {}
    else:
        assert told(row) == {"otel_ml/nonfinite_ranks/loss": 1.0, "otel_ml/nonfinite_rank/loss": 2.0}


def test_a_metric_of_which_no_program_says_how_it_is_reduced_is_told_too() -> None:
    service, ranks = Service(), [Rank(number, world_size=2) for number in range(2)]
    for rank, value in zip(ranks, (0.5, math.nan), strict=True):
        service.take(bare(rank, 0, {"loss": value}), rank.done(0))

    assert told(service.rows(own=True)[0]) == {"otel_ml/nonfinite_ranks/loss": 1.0, "otel_ml/nonfinite_rank/loss": 1.0}


def test_of_several_the_lowest_is_told() -> None:
    assert told(row_with(0.5, math.nan, 0.3, math.inf)) == {
        "otel_ml/nonfinite_ranks/loss": 2.0,
        "otel_ml/nonfinite_rank/loss": 1.0,
    }


def test_where_it_is_all_of_them_none_is_named() -> None:
    assert told(row_with(math.nan, math.nan, math.nan)) == {"otel_ml/nonfinite_ranks/loss": 3.0}


def test_it_has_the_place_in_names_of_the_metric_that_it_is_about() -> None:
    row = row_with(0.5, math.nan, role="evaluator")

    assert told(row) == {
        "evaluator/otel_ml/nonfinite_ranks/loss": 1.0,
        "evaluator/otel_ml/nonfinite_rank/loss": 1.0,
    }


@pytest.mark.parametrize("values", [(1.7e308, 1.7e308), (0.5, 0.4)], ids=["too large a sum", "numbers"])
def test_what_is_finite_of_each_rank_names_nobody(values: tuple[float, ...]) -> None:
    assert told(row_with(*values, reduce="sum")) == {}


def test_of_one_rank_alone_nothing_is_told() -> None:
    assert told(row_with(math.nan)) == {}


def test_what_comes_late_is_no_correction_of_it() -> None:
    service, ranks = Service(), [Rank(number, world_size=3) for number in range(3)]
    service.take(*(rank.step(0, {"loss": value}) for rank, value in zip(ranks, (0.5, math.nan, 0.4), strict=True)))

    service.take(ranks[2].record(0, {"loss": math.nan}), ranks[2].done(0))

    assert service.amendments == 0
    assert told(service.rows(own=True)[0])["otel_ml/nonfinite_rank/loss"] == 1.0


def test_why_tells_which_rank_was_first() -> None:
    service, ranks = Service(), [Rank(number) for number in range(3)]
    for step in range(20):
        broken = {1} if step == 12 else {0, 1, 2} if step > 12 else set[int]()
        for number, rank in enumerate(ranks):
            service.take(rank.step(step, {"loss": math.nan if number in broken else 1.0}, "mean"))
    service.take(*(rank.bye() for rank in ranks))

    answer = why(facts_of("run", service.records), Question("loss"))

    assert answer.sentences[0] == "loss became nan at step 12, on rank 1 alone; the step before had 1."
