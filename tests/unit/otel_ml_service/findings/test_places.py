"""Ranks that are slow together: their host or group is named, once, and none of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import numpy as np
import pytest

from otel_ml_service.findings.finding import Finding
from otel_ml_service.findings.step_findings import StepFindings
from otel_ml_service.findings.step_timers import StepTimers

RANKS = 24
HOSTS = tuple(f"n{rank // 4}" for rank in range(RANKS))
MESH: tuple[Mapping[str, int], ...] = tuple(
    {"dp": rank // 8, "cp": rank // 2 % 4, "tp": rank % 2} for rank in range(RANKS)
)


def played(
    slow: Mapping[int, float],
    steps: range = range(40),
    *,
    until: int = 10**9,
    hosts: tuple[str, ...] = HOSTS,
    mesh: tuple[Mapping[str, int], ...] = (),
    step_findings: StepFindings | None = None,
) -> tuple[StepFindings, list[Finding]]:
    step_findings, draw, told = step_findings or StepFindings(), np.random.default_rng(1), []
    for step in steps:
        work = np.array([1.0, 2.0]) * draw.lognormal(0.0, 0.01, (RANKS, 2))
        for rank, share in slow.items():
            work[rank, 0] *= 1 + share * (10 <= step < until)
        total = work.sum(axis=1)
        table = np.column_stack((work, total.max() - total + 0.05))
        timers = StepTimers(
            tuple(range(RANKS)), ("forward", "backward", "all_reduce"), table, hosts=hosts, topologies=mesh
        )
        told += step_findings.step(step, timers, {})
    return step_findings, told


def evenly(ranks: Collection[int], share: float = 0.4) -> dict[int, float]:
    return dict.fromkeys(ranks, share)


def test_a_host_on_which_all_ranks_are_slow_is_named_once_with_its_ranks():
    step_findings, told = played(evenly(range(4, 8)))

    [finding] = step_findings
    assert (finding.kind, finding.place, finding.rank, finding.ranks) == ("slow", "host n1", None, (4, 5, 6, 7))
    assert (finding.phase, finding.since) == ("forward", 10)
    assert [one.place for one in told] == ["host n1"]
    assert finding.slowdown == pytest.approx(0.4, abs=0.05)
    assert finding.saved_s == pytest.approx(0.4, abs=0.1)  # without one of its ranks alone nothing would be saved


def test_a_place_is_named_where_one_of_its_ranks_is_no_slower_than_others():
    _, told = played(evenly((4, 5, 6)))

    assert [(one.place, one.ranks) for one in told] == [("host n1", (4, 5, 6))]


@pytest.mark.parametrize("ranks", [(4, 5), (3, 4), (1, 6, 11)], ids=["half of a host", "of two hosts", "of three"])
def test_ranks_that_are_not_nearly_all_of_a_place_are_named_themselves(ranks: tuple[int, ...]) -> None:
    step_findings, told = played(evenly(ranks))

    assert {one.place for one in step_findings} == {f"rank {rank}" for rank in ranks}
    assert {one.place for one in told} == {f"rank {rank}" for rank in ranks}


def test_two_slow_hosts_are_two_findings():
    of_two = tuple(f"n{rank // 2}" for rank in range(RANKS))

    step_findings, told = played(evenly((2, 3, 8, 9)), hosts=of_two)

    assert {one.place for one in step_findings} == {"host n1", "host n4"}
    assert sorted(one.place for one in told) == ["host n1", "host n4"]


@pytest.mark.parametrize(
    ("ranks", "place"),
    [((4, 5, 12, 13, 20, 21), "cp 2"), ((10, 11), "cp 1, dp 1"), ((4, 12, 20), "cp 2, tp 0")],
    ids=["a coordinate", "a tensor-parallel group", "a data-parallel group"],
)
def test_ranks_that_have_coordinates_in_common_are_named_by_these(ranks: tuple[int, ...], place: str) -> None:
    step_findings, told = played(evenly(ranks), hosts=(), mesh=MESH)

    assert [(one.place, one.ranks) for one in step_findings] == [(place, ranks)]
    assert [one.place for one in told] == [place]


def test_a_rank_that_was_slow_before_the_others_of_its_host_stays_told_and_is_in_the_place_too():
    step_findings, told = played({5: 0.4}, range(30))
    step_findings, more = played(evenly(range(4, 8)), range(30, 60), step_findings=step_findings)

    assert {one.place for one in step_findings} == {"rank 5", "host n1"}
    assert [one.place for one in (*told, *more)] == ["rank 5", "host n1"]


def test_a_host_is_over_once_when_its_ranks_are_as_quick_as_the_others_again():
    step_findings, told = played(evenly(range(4, 8)), range(80), until=50)

    assert list(step_findings) == []
    over = told[-1]
    assert [one.is_over for one in told].count(True) == 1
    assert (over.place, over.since, over.last, over.ranks) == ("host n1", 10, 49, (4, 5, 6, 7))


def test_the_rank_that_stays_slow_when_its_host_no_longer_is_is_named_then():
    slow = evenly(range(4, 8))
    step_findings, _ = played(slow, range(40))
    step_findings, told = played({6: 0.4}, range(40, 100), step_findings=step_findings)

    assert [(one.place, one.is_over) for one in told] == [("host n1", True), ("rank 6", False)]
    assert [one.place for one in step_findings] == ["rank 6"]


def test_a_host_that_was_found_goes_on_after_a_restart_and_its_ranks_are_not_told():
    before, _ = played(evenly(range(4, 8)))

    after, told = played(evenly(range(4, 8)), range(40, 60), step_findings=StepFindings(tuple(before)))

    assert [(one.place, one.since, one.ranks) for one in after] == [("host n1", 10, (4, 5, 6, 7))]
    assert told == []


def test_another_attempt_ends_what_was_found_of_a_place():
    step_findings, _ = played(evenly(range(4, 8)))

    assert [(one.place, one.is_over) for one in step_findings.finish()] == [("host n1", True)]
    assert list(step_findings) == []


@pytest.mark.parametrize("rank_of", [lambda _: 4, lambda number: 4 + number], ids=["one rank", "each in turn"])
def test_a_host_whose_ranks_keep_up_for_a_while_and_are_slow_again_stays_one_finding(rank_of: Callable[[int], int]):
    step_findings, told = played(evenly(range(4, 8)))
    for number in range(4):
        begin, keeps_up = 40 + 60 * number, rank_of(number)
        for slow, steps in (({4, 5, 6, 7} - {keeps_up}, (0, 20)), ({4, 5, 6, 7}, (20, 60))):
            place = range(begin + steps[0], begin + steps[1])
            step_findings, more = played(evenly(slow), place, step_findings=step_findings)
            told += more

    assert [(one.place, one.is_over) for one in told] == [("host n1", False)]
    assert [(one.place, one.ranks) for one in step_findings] == [("host n1", (4, 5, 6, 7))]


@pytest.mark.parametrize("by", [1, 10])
def test_a_rank_waits_for_the_others_of_its_host_whatever_the_numbers_of_steps_go_up_by(by: int) -> None:
    step_findings, told = played({}, range(20 * by, 40 * by, by))
    for slow, begin, end in (({4: 0.4}, 40, 42), (evenly(range(4, 8)), 42, 60)):
        step_findings, more = played(slow, range(begin * by, end * by, by), step_findings=step_findings)
        told += more

    assert [one.place for one in told] == ["host n1"]
