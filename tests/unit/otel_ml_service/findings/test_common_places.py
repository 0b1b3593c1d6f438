"""What slow ranks have in common: hosts and coordinates, at the edges of the shares that are asked for."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np
import pytest

from otel_ml_service.findings.places import common_places
from otel_ml_service.findings.step_timers import StepTimers


def found(
    slow: Collection[int],
    ranks: int,
    hosts: Sequence[str] = (),
    topologies: Sequence[Mapping[str, int]] = (),
    without: Collection[int] = (),
) -> dict[str, list[int]]:
    seconds = np.ones((ranks, 1))
    seconds[list(without)] = np.nan
    timers = StepTimers(
        tuple(range(ranks)), ("forward",), seconds, hosts=tuple(hosts), topologies=tuple(topologies)
    )  # fmt: skip
    return {where: sorted(members) for where, members in common_places(set(slow), "forward", timers).items()}


def hosts_of(each: int, count: int) -> list[str]:
    return [f"n{rank // each}" for rank in range(each * count)]


@pytest.mark.parametrize(("slow", "is_named"), [(4, True), (3, True), (2, False)])
def test_three_of_four_ranks_are_nearly_all_of_a_host(slow: int, is_named: bool) -> None:
    assert found(range(slow), 16, hosts_of(4, 4)) == ({"host n0": [0, 1, 2, 3]} if is_named else {})


@pytest.mark.parametrize(("places", "is_named"), [(2, True), (3, False)])
def test_where_more_than_half_of_the_hosts_are_slow_it_is_none_of_them(places: int, is_named: bool) -> None:
    expected = {f"host n{number}": [4 * number + rank for rank in range(4)] for number in range(places)}

    assert found(range(4 * places), 16, hosts_of(4, 4)) == (expected if is_named else {})


@pytest.mark.parametrize(("in_place", "is_named"), [(9, True), (8, False)])
def test_a_tenth_of_the_slow_ranks_may_be_elsewhere(in_place: int, is_named: bool) -> None:
    hosts = [f"n{rank // in_place}" for rank in range(in_place * 3)]

    assert (found([*range(in_place), in_place], len(hosts), hosts) != {}) == is_named


def test_one_rank_is_no_place_and_neither_is_a_host_of_one() -> None:
    assert found([0], 4, hosts_of(2, 2)) == {}
    assert found([0, 1], 6, [f"n{rank}" for rank in range(6)]) == {}
    assert found([0, 1], 6) == {}


def test_ranks_that_do_not_have_the_timer_are_no_part_of_a_host() -> None:
    assert found([0, 1], 8, hosts_of(4, 2), without=[2, 3]) == {"host n0": [0, 1]}


def test_a_timer_that_the_step_does_not_have_is_slow_nowhere() -> None:
    timers = StepTimers((0, 1, 2, 3), ("forward",), np.ones((4, 1)), hosts=("a", "a", "b", "b"))

    assert common_places({0, 1}, "backward", timers) == {}


def test_hosts_come_before_coordinates_of_as_few_places_and_fewer_places_before_more() -> None:
    by_two = [{"dp": rank // 4, "tp": rank % 4} for rank in range(16)]

    assert found(range(4), 16, hosts_of(4, 4), by_two) == {"host n0": [0, 1, 2, 3]}
    assert found(range(4), 16, hosts_of(2, 8), by_two) == {"dp 0": [0, 1, 2, 3]}
    assert found([1, 5, 9, 13], 16, hosts_of(4, 4), by_two) == {"tp 1": [1, 5, 9, 13]}


def test_several_coordinates_make_a_place_where_one_does_not_and_as_few_as_can_be() -> None:
    mesh = [{"dp": rank // 8, "pp": rank // 4 % 2, "tp": rank // 2 % 2} for rank in range(32)]
    two = [rank for rank, at in enumerate(mesh) if at["dp"] == 1 and at["pp"] == 0]
    three = [rank for rank in two if mesh[rank]["tp"] == 1]

    assert found(two, 32, (), mesh) == {"dp 1, pp 0": two}
    assert found(three, 32, (), mesh) == {"dp 1, pp 0, tp 1": three}


def test_six_coordinates_are_looked_at() -> None:
    def named(last: str) -> list[dict[str, int]]:
        return [{**dict.fromkeys("abcde", rank), last: rank // 4} for rank in range(16)]

    assert found(range(4), 16, (), named("f")) == {"f 0": [0, 1, 2, 3]}
    assert found(range(4), 16, (), [{**of, "aa": 99 - of["a"]} for of in named("f")]) == {}


def test_a_rank_without_a_coordinate_is_in_no_place_of_it() -> None:
    mesh: list[dict[str, int]] = [{"dp": rank // 4} for rank in range(12)]
    mesh[3] = {}

    assert found(range(3), 12, (), mesh) == {"dp 0": [0, 1, 2]}
