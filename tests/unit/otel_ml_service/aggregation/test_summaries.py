"""Final values: each rank may say them, and the run has one of each name where they are equal."""

from __future__ import annotations

import itertools
import math

import pytest

from otel_ml_exporters.records import RunStatus, Summary
from otel_ml_service.aggregation.observation import Observation
from otel_ml_service.aggregation.settings import EngineSettings
from tests.strategies import START, Rank, Service


def ranks_of(count: int, **facts: object) -> list[Rank]:
    return [Rank(rank, world_size=count, **facts) for rank in range(count)]


def says(rank: Rank, values: object, after: float = 0.0) -> list[Observation]:
    rank.clock = START + after
    return rank.event("ml.summary", values)


def final_values(service: Service) -> dict[str, float]:
    """Return what a backend has, that keeps the last value of each name; without otel_ml's own."""
    shown: dict[str, float] = {}
    for record in service.records:
        if isinstance(record, Summary):
            shown |= {name: value for name, value in record.values.items() if not name.startswith("otel_ml/")}
    return shown


def end(service: Service, ranks: list[Rank]) -> None:
    service.take(*[rank.bye() for rank in ranks])
    assert isinstance(service.records[-1], RunStatus)
    assert service.records[-1].status == "finished"


@pytest.mark.parametrize("value", [0.25, math.nan, math.inf])
def test_equal_values_of_all_ranks_are_one_entry(value: float) -> None:
    service, ranks = Service(), ranks_of(8)

    service.take(*[says(rank, {"final/loss": value}) for rank in reversed(ranks)])
    end(service, ranks)

    assert final_values(service) == pytest.approx({"final/loss": value}, nan_ok=True)


def test_rank_0_is_shown_at_once_and_what_others_say_differently_at_the_end() -> None:
    service, ranks = Service(), ranks_of(3)

    service.take(*[says(rank, {"final": float(at % 2)}) for at, rank in enumerate(ranks)])
    before = final_values(service)
    end(service, ranks)

    assert before == {"final": 0.0}
    assert final_values(service) == {"final": 0.0, "final/rank_1": 1.0}


def test_without_rank_0_the_lowest_rank_has_the_name() -> None:
    service, ranks = Service(), ranks_of(4)

    service.take(says(ranks[3], {"best": 3.0}), says(ranks[2], {"best": 2.0}))
    end(service, ranks)

    assert final_values(service) == {"best": 2.0, "best/rank_3": 3.0}


@pytest.mark.parametrize("is_restarted", [False, True])
def test_the_order_in_which_ranks_are_heard_changes_nothing(is_restarted: bool) -> None:
    def outcome(order: tuple[int, ...]) -> dict[str, float]:
        service, ranks = Service(), ranks_of(3)
        words = [
            says(ranks[0], {"best": 0.5}, after=1.0),
            says(ranks[0], {"best": 0.75}, after=2.0),
            says(ranks[1], {"best": 0.5}, after=1.1),
            says(ranks[1], {"best": 0.75}, after=2.1),
            says(ranks[2], {"best": 0.5}, after=1.2),
        ]
        for number in order:
            service.take(words[number])
            if is_restarted:
                service.restart()
        end(service, ranks)
        return final_values(service)

    found = [outcome(order) for order in itertools.permutations(range(5))]

    assert found == [{"best": 0.75, "best/rank_2": 0.5}] * 120


def test_words_that_an_end_has_settled_give_their_places_to_new_ones_and_no_more() -> None:
    service, ranks = Service(EngineSettings(summaries=4)), ranks_of(4)
    service.take(*[says(rank, {"a": 1.0}) for rank in ranks])
    end(service, ranks)  # of four equal words one is kept: three more find a place

    later = [Rank(rank, instance=f"again-{rank}", world_size=4, attempt=1) for rank in range(4)]
    service.take(*[rank.inside(0) for rank in later])  # the run goes on
    service.take(*[says(rank, {"b": float(rank.writer.rank)}, 1.0) for rank in later[1:]])
    assert not any(name.startswith("b") for name in final_values(service)), "they wait for the end"
    service.take(says(later[0], {"c": 5.0}, 2.0), says(later[1], {"c": 6.0}, 2.0))

    assert final_values(service)["c/rank_1"] == 6.0, "what finds no place is published at once, with its rank"


def test_what_comes_after_the_end_is_held_against_what_was_shown() -> None:
    service, ranks = Service(), ranks_of(3)
    service.take(says(ranks[2], {"best": 2.0}))
    end(service, ranks)

    service.take(says(ranks[0], {"best": 1.0}, after=1.0), says(ranks[1], {"best": 1.0}, after=1.0))

    assert final_values(service) == {"best": 1.0, "best/rank_2": 2.0}


def test_a_later_life_with_fewer_ranks_leaves_no_old_values_beside_its_own() -> None:
    service, ranks = Service(), ranks_of(4)
    service.take(*[says(rank, {"best": 1.0}) for rank in ranks])
    end(service, ranks)

    again = [Rank(rank, world_size=2, instance=f"again-{rank}", clock=START + 10) for rank in range(2)]
    service.take(*[says(rank, {"best": 2.0}, after=10.0) for rank in again])
    service.take(*[rank.bye() for rank in again])

    assert final_values(service) == {"best": 2.0}


def test_roles_have_names_of_their_own_and_where_they_share_one_the_lower_has_it() -> None:
    service = Service()
    apart = [Rank(0, role="evaluator"), Rank(0)]
    shared = [Rank(0, role=role, with_role=False, instance=f"{role}-shared") for role in ("b", "a")]

    service.take(*[says(rank, {"accuracy": 0.5}) for rank in apart])
    service.take(*[says(rank, {"shared": float(at)}) for at, rank in enumerate(shared)])
    end(service, [*apart, *shared])

    assert final_values(service) == {
        "accuracy": 0.5,
        "evaluator/accuracy": 0.5,
        "shared": 1.0,
        "shared/rank_0": 0.0,
    }
