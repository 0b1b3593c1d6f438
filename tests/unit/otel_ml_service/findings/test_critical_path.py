"""The longest path through the spans of a step: what adds up to it where phases are no line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_ml_exporters.records import Span
from otel_ml_service.findings.critical_path import NOT_BEGUN, _Waits, account_of, critical_path
from otel_ml_service.findings.step_account import account_of_step
from tests.unit.otel_ml_service.findings.pipeline_spans import MS, Operation, spans_of_pipeline

NAMES = ("step", "forward", "backward", "all_reduce", "forward-recv", "forward-send", "p2p", "barrier", "moe")


def span(rank: int, name: str, start: float, end: float, inside: str | None = None) -> Span:
    parent = None if inside is None else f"{rank}{inside}"
    return Span("aa", f"{rank}{name}", parent, name, int(start * MS), int(end * MS), "trainer", rank, "step", 7)


@st.composite
def steps(draw: st.DrawFn) -> Mapping[int, Sequence[Span]]:
    found: dict[int, list[Span]] = {}
    for rank in range(draw(st.integers(1, 5))):
        for number in range(draw(st.integers(0, 8))):
            begin, took = draw(st.integers(0, 60)), draw(st.integers(0, 30))
            inside = draw(st.sampled_from([None, *(one.span_id for one in found.get(rank, ()))]))
            made = Span("aa", f"{rank}.{number}", inside, draw(st.sampled_from(NAMES)), begin, begin + took, "t", rank,
                        "step", 7)  # fmt: skip
            found.setdefault(rank, []).append(made)
    return found


def lasted(spans: Sequence[Span]) -> int:
    whole = [one for one in spans if one.name == "step"] or spans
    return max(one.end_ns for one in whole) - min(one.start_ns for one in whole)


@given(steps())
def test_the_path_has_each_nanosecond_of_the_slowest_ranks_step_once_whatever_overlaps(of_rank):
    path = critical_path(of_rank)

    longest = max(map(lasted, of_rank.values()), default=0)
    assert sum(one.end_ns - one.start_ns for one in path) == longest
    assert all(before.end_ns == after.start_ns for before, after in pairwise(path))
    assert sum(one.seconds for one in account_of(path)) == pytest.approx(longest / 1e9, abs=1e-15)


def pipeline(seed: int, stages: int = 4, replicas: int = 2, micro_batches: int = 6) -> dict[Operation, int]:
    rng = np.random.default_rng(seed)
    return {
        (replica, stage, kind, number): int(rng.integers(MS, 4 * MS)) * (2 if kind == "B" else 1)
        for replica in range(replicas)
        for stage in range(stages)
        for kind in "FB"
        for number in range(micro_batches)
    }


def length(works: Mapping[Operation, int]) -> int:
    return max(one.end_ns for found in spans_of_pipeline(2, 4, 6, works).values() for one in found)


def operation(rank: int, span_id: str) -> Operation:
    what = span_id.partition("/")[2]
    return rank % 2, rank // 2, what[0], int(what[1:])


@pytest.mark.parametrize("seed", range(8))
def test_a_step_of_a_pipeline_is_longer_by_what_is_longer_on_the_path_and_not_shorter_without_the_rest(seed):
    works = pipeline(seed)

    path = critical_path(spans_of_pipeline(2, 4, 6, works))

    on_it = {operation(one.rank, one.span_id) for one in path if one.phase.endswith("compute")}
    assert 10 < len(on_it) < len(works) / 2
    for one in on_it:
        assert length({**works, one: works[one] + MS}) == length(works) + MS
    assert length({one: took if one in on_it else 0 for one, took in works.items()}) >= length(works) - 3 * MS
    others = [one for one in works if one not in on_it]
    assert length({**works, **dict.fromkeys(others[::2], MS // 2)}) == length(works)


def test_of_a_pipeline_waiting_is_not_in_the_account_of_who_was_waited_for():
    works = pipeline(3)
    slow = {one: took * (3 if one[:2] == (1, 2) else 1) for one, took in works.items()}  # rank 5

    found = account_of_step(spans_of_pipeline(2, 4, 6, slow))

    assert found.is_path
    seconds = {one.phase: one.seconds for one in found.phases}
    assert seconds.keys() >= {"forward-compute", "backward-compute", "grads-reduce-scatter"}
    assert {one.rank for one in found.phases if one.phase.endswith("compute")} == {5}
    waited = sum(of_it for phase, of_it in seconds.items() if "recv" in phase or "send" in phase)
    assert waited < 0.03 * sum(seconds.values())


def test_communication_counts_where_nothing_else_runs_beside_it():
    # A thread reduces from 6 to 14; backward ends at 10, and nothing is timed until it is done.
    of_rank = {
        rank: [span(rank, "step", 0, 16), span(rank, "forward", 0, 5, "step"), span(rank, "backward", 5, 10, "step"),
               span(rank, "all_reduce", 6, 14), span(rank, "optimizer", 14, 16, "step")]
        for rank in (0, 1)
    }  # fmt: skip

    found = account_of_step(of_rank)

    assert {one.phase: round(one.seconds * 1e3) for one in found.phases} == {
        "forward": 5, "backward": 5, "all_reduce": 4, "optimizer": 2,
    }  # fmt: skip


def test_communication_inside_of_a_timer_that_was_begun_around_it_counts_for_itself():
    of_rank = {0: [span(0, "backward", 0, 10), span(0, "all_reduce", 4, 9, "backward")]}

    found = account_of_step(of_rank)

    assert {one.phase: round(one.seconds * 1e3) for one in found.phases} == {"backward": 5, "all_reduce": 5}


def test_who_entered_a_collective_last_is_on_the_path_although_another_ranks_step_is_longer():
    of_rank = {
        0: [span(0, "forward", 0, 2), span(0, "barrier", 2, 10.2), span(0, "p2p", 10.2, 10.3)],
        1: [span(1, "forward", 0, 9), span(1, "barrier", 9, 10)],
        2: [span(2, "forward", 0, 3), span(2, "barrier", 3, 10.1)],
    }

    path = critical_path(of_rank)

    assert [(one.phase, one.rank) for one in path] == [("forward", 1), ("barrier", 0), ("p2p", 0)]


def test_a_rank_that_had_not_begun_its_step_yet_is_waited_for_and_did_not_work_meanwhile():
    of_rank = {
        0: [span(0, "step", 0, 20), span(0, "forward-recv", 0, 16, "step"), span(0, "forward-compute", 16, 20, "step")],
        1: [span(1, "step", 12, 18), span(1, "forward-compute", 12, 15, "step"),
            span(1, "forward-send", 15, 18, "step")],
    }  # fmt: skip

    path = critical_path(of_rank)

    assert [(one.phase, one.rank, (one.end_ns - one.start_ns) // MS) for one in path] == [
        (NOT_BEGUN, 1, 12), ("forward-compute", 1, 3), ("forward-recv", 0, 1), ("forward-compute", 0, 4),
    ]  # fmt: skip


def test_work_inside_of_a_timer_that_waits_is_work_although_who_was_waited_for_came_before_it():
    of_rank = {
        0: [span(0, "forward", 0, 2), span(0, "all_reduce", 2, 10), span(0, "unpack", 6, 8, "all_reduce")],
        1: [span(1, "forward", 0, 4), span(1, "all_reduce", 4, 10)],
    }

    path = critical_path(of_rank)

    assert [(one.phase, one.rank, (one.end_ns - one.start_ns) // MS) for one in path] == [
        ("forward", 1, 4), ("all_reduce", 0, 2), ("unpack", 0, 2), ("all_reduce", 0, 2),
    ]  # fmt: skip


def test_clocks_that_are_far_apart_lead_to_nobody():
    hour = 3600e3
    of_rank = {
        0: [span(0, "forward", 0, 2), span(0, "all_reduce", 2, 10)],
        1: [span(1, "forward", hour, hour + 9), span(1, "all_reduce", hour + 9, hour + 10)],
    }

    assert {one.rank for one in critical_path(of_rank)} == {0}


def test_work_that_a_thread_does_beside_a_step_takes_nothing_of_the_steps_own():
    spans = [span(0, "step", 0, 40), span(0, "data", 0, 10, "step"), span(0, "forward", 10, 40, "step"),
             span(0, "prefetch", 5, 25)]  # fmt: skip

    assert {one.phase: one.seconds for one in account_of(critical_path({0: spans}))} == {"data": 0.01, "forward": 0.03}


def came(
    of_rank: Mapping[int, Sequence[Span]], rank: int, since: float = 0, now: float = 1_000
) -> tuple[int, float] | None:
    """Return who ended the waiting of a rank's first span, and when it came, in milliseconds."""
    found = _Waits(of_rank, {}).of(of_rank[rank][0], int(since * MS), int(now * MS))
    return None if found is None else (found.rank, found.at_ns / MS)


class TestWhoCame:
    def test_of_those_who_enter_a_collective_last_it_is_the_lowest_rank(self) -> None:
        of_rank = {rank: [span(rank, "all_reduce", start, 100)] for rank, start in enumerate([10, 50, 50, 20])}

        assert [came(of_rank, rank) for rank in range(4)] == [(1, 50), None, None, (1, 50)]

    @pytest.mark.parametrize(("ends", "are_one"), [(109, True), (110, False)])
    def test_who_leaves_a_tenth_of_its_time_later_was_in_another_one(self, ends: float, are_one: bool) -> None:
        # Rank 0 waits for 90 ms: what ends within 9 ms of it is the same all-reduce.
        of_rank = {0: [span(0, "all_reduce", 10, 100)], 1: [span(1, "all_reduce", 60, ends)]}

        assert came(of_rank, 0) == ((1, 60) if are_one else None)

    @pytest.mark.parametrize(("ends", "are_one"), [(101, True), (101.1, False)])
    def test_of_a_short_one_a_millisecond_is_together(self, ends: float, are_one: bool) -> None:
        of_rank = {0: [span(0, "all_reduce", 98, 100)], 1: [span(1, "all_reduce", 99, ends)]}

        assert came(of_rank, 0) == ((1, 99) if are_one else None)

    @pytest.mark.parametrize(
        ("since", "now", "is_there"),
        [(0, 1_000, True), (50, 1_000, True), (51, 1_000, False), (0, 51, True), (0, 50, False)],
    )
    def test_only_who_came_in_the_time_that_is_asked_about(self, since: float, now: float, is_there: bool) -> None:
        of_rank = {0: [span(0, "all_reduce", 10, 100)], 1: [span(1, "all_reduce", 50, 100)]}

        assert came(of_rank, 0, since, now) == ((1, 50) if is_there else None)

    def test_work_waits_for_nobody(self) -> None:
        assert came({0: [span(0, "forward", 10, 100)], 1: [span(1, "forward", 50, 100)]}, 0) is None

    def test_the_nth_message_that_is_received_is_the_nth_that_was_sent(self) -> None:
        # Rank 1 sends as many; rank 2 sends one before it could be received, and rank 3 another number of them.
        of_rank = {
            0: [span(0, "forward-recv", 10, 60)],
            1: [span(1, "forward-send", 50, 61)],
            2: [span(2, "forward-send", 70, 80)],
            3: [span(3, "forward-send", 55, 60), span(3, "forward-send", 90, 95)],
        }

        assert came(of_rank, 0) == (1, 50)

    def test_of_several_that_fit_it_is_the_one_with_the_least_delay(self) -> None:
        of_rank = {
            0: [span(0, "forward-recv", 10, 60)],
            1: [span(1, "forward-send", 20, 61)],
            2: [span(2, "forward-send", 45, 61)],
        }

        assert came(of_rank, 0) == (2, 45)
