"""What one writer says of a metric holds for what others record, before and after, also over a restart (ADR 0036)."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pytest

from otel_ml.wire.reduction import Reduction
from otel_ml_exporters.records import HistogramValue
from otel_ml_service.aggregation.converted_points import lacking
from otel_ml_service.aggregation.observation import Fragment, Observation, Position
from otel_ml_service.aggregation.piece import Piece, Shape, Source
from tests.strategies import Rank, Service

BARE = Reduction(unsaid=("across",))


def bare(rank: Rank, step: int | None, values: Mapping[str, float]) -> list[Observation]:
    """Record values of which nobody says how they are reduced."""
    return [one._replace(reduction=BARE) for one in rank.record(step, values) if isinstance(one, Fragment)]


def defined(rank: Rank, pattern: str, reduction: str) -> list[Observation]:
    return [
        one._replace(declared=((pattern, Reduction.parse(reduction)),))
        for one in rank.waits()
        if isinstance(one, Position)
    ]


@pytest.fixture
def ranks() -> tuple[Rank, Rank]:
    return Rank(0, world_size=2), Rank(1, world_size=2)


@pytest.mark.parametrize("restarts", [False, True])
def test_a_rank_that_says_it_last_decides_for_what_an_open_step_holds(ranks: tuple[Rank, Rank], restarts: bool) -> None:
    service = Service()
    service.take(bare(ranks[0], 0, {"tokens": 1.0}), bare(ranks[0], 0, {"tokens": 3.0}), ranks[0].done(0))
    if restarts:
        service.restart()
    service.take(ranks[1].record(0, {"tokens": 5.0}, "sum"), ranks[1].done(0))

    assert service.rows() == {0: {"tokens": 9.0}}
    assert not service.notices


@pytest.mark.parametrize("restarts", [False, True])
def test_a_definition_of_a_rank_that_records_nothing_of_the_metric_decides(
    ranks: tuple[Rank, Rank], restarts: bool
) -> None:
    service = Service()
    service.take(defined(ranks[1], "tok*", "sum"))
    if restarts:
        service.restart()
    service.take(bare(ranks[0], 0, {"tokens": 1.0}), bare(ranks[0], 0, {"tokens": 3.0}), ranks[0].done(0))
    service.take(ranks[1].record(0, {"loss": 5.0}), ranks[1].done(0))

    assert service.rows() == {0: {"tokens": 4.0, "loss": 5.0}}


def test_parts_that_two_ranks_say_add_up() -> None:
    ranks = [Rank(number, world_size=2, topology=(("dp", 0, 1),)) for number in range(2)]
    over_dp = Reduction(("mean",), over="dp", unsaid=("across",))
    service = Service()
    service.take(ranks[0].record(0, {"tokens": 3.0}, "sum"), ranks[0].done(0))
    (said,) = bare(ranks[1], 0, {"tokens": 5.0})
    assert isinstance(said, Fragment)
    service.take([said._replace(reduction=over_dp)], ranks[1].done(0))

    assert service.rows() == {0: {"tokens": 3.0}}
    assert not service.notices


def test_two_different_reductions_contradict_and_a_call_without_one_does_not() -> None:
    ranks = [Rank(number, world_size=3) for number in range(3)]
    service = Service()
    service.take(bare(ranks[0], 0, {"x": 1.0}), ranks[1].record(0, {"x": 2.0}, "sum"))
    assert not service.notices
    service.take(ranks[2].record(0, {"x": 4.0}, "max"), *(rank.done(0) for rank in ranks))

    assert service.rows() == {0: {"x/sum": 2.0, "x/max": 4.0}}
    (said,) = service.notices
    assert "'sum' on rank 1 and by 'max' on rank 2" in said


def test_a_step_that_closed_before_keeps_its_mean_and_that_is_said_once(ranks: tuple[Rank, Rank]) -> None:
    service = Service()
    for rank in ranks:
        service.take(bare(rank, 0, {"tokens": 1.0}), bare(rank, 0, {"tokens": 3.0}), rank.done(0))
    service.restart()
    for rank in ranks:
        service.take(rank.record(1, {"tokens": 5.0}, "sum"), rank.done(1))

    assert service.rows() == {0: {"tokens": 2.0}, 1: {"tokens": 10.0}}
    (said,) = service.notices
    assert "when step 0 closed" in said
    assert "'mean' up to there, and 'sum' from then on" in said


def test_what_was_folded_ahead_of_time_follows_what_is_said_meanwhile(ranks: tuple[Rank, Rank]) -> None:
    service = Service()
    for step in range(4):
        service.take(bare(ranks[0], step, {"x": 1.0}), bare(ranks[0], step, {"x": 3.0}))
        service.take(bare(ranks[1], step, {"x": 5.0}))
    service.take(ranks[0].done(0), ranks[1].done(0))  # looks at those that come next
    service.take(ranks[0].record(3, {"x": 7.0}, "sum"), *(rank.done(step) for step in (1, 2, 3) for rank in ranks))

    assert service.rows() == {0: {"x": 3.0}, 1: {"x": 9.0}, 2: {"x": 9.0}, 3: {"x": 16.0}}


def test_the_name_is_reduced_so_on_every_axis_of_a_role_and_not_in_another_role() -> None:
    trainer, generator = Rank(0), Rank(0, role="generator")
    service = Service()
    service.take(trainer.record(0, {"x": 1.0}, "sum"), trainer.done(0))
    service.take(bare(trainer, 0, {"y": 1.0}))
    for value in (1.0, 3.0):
        service.take(bare(generator, 0, {"x": value}))
        service.take(
            [
                one._replace(reduction=BARE)
                for one in trainer.record(0, {"x": value}, axis="eval")
                if isinstance(one, Fragment)
            ]
        )
    service.take(trainer.done(0, axis="eval"), generator.done(0))
    service.wait(70)

    assert service.rows(axis="eval")[0] == {"eval/x": 4.0}
    assert service.rows(role="generator")[0] == {"generator/x": 2.0}


def test_what_a_rank_cannot_tell_is_left_out_and_said(ranks: tuple[Rank, Rank]) -> None:
    service = Service()
    (many,) = ranks[0].record(0, {"x": [1.0, 2.0, 3.0]})  # as a program does that folds by itself
    assert isinstance(many, Fragment)
    service.take([many._replace(reduction=BARE)], ranks[1].record(0, {"x": [4.0, 5.0]}, "p50"))
    service.take(*(rank.done(0) for rank in ranks))

    assert service.rows()[0] == {"x": pytest.approx(4.0, rel=0.006)}
    assert any("rank 0 does not tell the distribution" in said for said in service.notices)


def test_the_order_of_records_is_not_told_where_nobody_had_asked_for_it(ranks: tuple[Rank, Rank]) -> None:
    service = Service()
    (many,) = ranks[0].record(0, {"x": [1.0, 3.0]})
    assert isinstance(many, Fragment)
    service.take([many._replace(reduction=BARE)], ranks[1].record(0, {"x": [4.0, 5.0]}, "last>mean"))
    service.take(*(rank.done(0) for rank in ranks))

    assert service.rows()[0] == {"x": 5.0}
    assert any("rank 0 does not tell the order" in said for said in service.notices)


@pytest.mark.parametrize(
    ("asked", "wanted", "lacks"),
    [
        ("last", "sum", {"x": "the sum"}),
        ("mean,last", "sum", {}),
        ("p50,last", "sum", {}),
        ("last", "first", {}),
        ("mean", "last", {"x": "the order"}),
        ("mean", "p50", {"x": "the distribution"}),
        ("p50", "p50,max", {}),
        ("mean", "max", {}),
    ],
)
def test_what_a_writer_does_not_tell_is_what_it_has_not_folded(asked: str, wanted: str, lacks: dict[str, str]) -> None:
    [sent] = Rank(0).record(0, {"x": [1.0, 2.0]}, asked)
    assert isinstance(sent, Fragment)
    source, series = Source(0, 0, "a", "a"), sent.partials.series
    piece = Piece(source, 1, sent.reduction, Shape(0, series), sent.partials, sent.partials.newest_ns)

    assert lacking(piece, Reduction.parse(wanted)) == lacks


def test_a_value_that_is_not_finite_is_in_no_distribution_that_somebody_else_asks_for(ranks: tuple[Rank, Rank]) -> None:
    service = Service()
    for value in (math.inf, -math.inf, math.nan, 0.0, -2.0, 8.0):
        service.take(bare(ranks[0], 0, {"x": value}))
    service.take(ranks[0].done(0), ranks[1].step(0, {"x": 4.0}, "max,histogram"))

    [bins] = [record for record in service.records if isinstance(record, HistogramValue)]
    assert sum(bins.counts) == 4.0
    assert (bins.edges[0], bins.edges[-1]) == pytest.approx((-2.0, 8.0), rel=0.02)
    assert not [said for said in service.notices if "does not tell" in said]


@pytest.mark.parametrize("globs", [("*", "tok*"), ("tok*", "*")])
@pytest.mark.parametrize("restarts", [False, True])
def test_what_is_said_of_a_name_counts_and_of_globs_the_one_with_more_characters(
    ranks: tuple[Rank, Rank], globs: tuple[str, str], restarts: bool
) -> None:
    said = {"*": "max", "tok*": "min", "tokens": "sum"}
    service = Service()
    for rank, pattern in zip((*ranks, ranks[0]), (*globs, "tokens"), strict=True):
        service.take(defined(rank, pattern, said[pattern]))
    if restarts:
        service.restart()
    for rank, value in zip(ranks, (1.0, 3.0), strict=True):
        service.take(bare(rank, 0, {"tokens": value, "tok/s": value, "loss": value}), rank.done(0))

    assert service.rows() == {0: {"tokens": 4.0, "tok/s": 1.0, "loss": 3.0}}
    assert not service.notices


def test_a_glob_that_two_ranks_say_in_two_ways_counts_by_the_alphabet_and_that_is_said(
    ranks: tuple[Rank, Rank],
) -> None:
    service = Service()
    service.take(defined(ranks[0], "tok*", "sum"), defined(ranks[1], "tok*", "max"))
    for rank, value in zip(ranks, (1.0, 3.0), strict=True):
        service.take(bare(rank, 0, {"tokens": value}), rank.done(0))

    assert service.rows() == {0: {"tokens": 3.0}}
    (said,) = service.notices
    assert "'tok*'" in said
    assert "'sum' on rank 0 and by 'max' on rank 1" in said
    assert "'max' counts" in said


def test_a_name_that_is_said_after_a_step_has_closed_by_a_glob_changes_later_steps_and_that_is_said(
    ranks: tuple[Rank, Rank],
) -> None:
    service = Service()
    service.take(defined(ranks[0], "tok*", "max"))
    for rank, value in zip(ranks, (1.0, 3.0), strict=True):
        service.take(bare(rank, 0, {"tokens": value}), rank.done(0))
    service.take(defined(ranks[1], "tokens", "sum"))
    for rank, value in zip(ranks, (1.0, 3.0), strict=True):
        service.take(bare(rank, 1, {"tokens": value}), rank.done(1))

    assert service.rows() == {0: {"tokens": 3.0}, 1: {"tokens": 4.0}}
    (said,) = service.notices
    assert "shows 'max' up to there, and 'sum' from then on" in said
