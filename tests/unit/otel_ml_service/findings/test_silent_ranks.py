"""Ranks that hang, fall silent, and are heard again."""

from __future__ import annotations

import pytest

from otel_ml_exporters.records import Table
from tests.strategies import Service
from tests.unit.otel_ml_service.findings.served_ranks import ranks_of, steps


def test_a_silent_rank_is_a_finding() -> None:
    service, ranks = Service(), ranks_of(3)
    steps(service, ranks, range(8))

    for step in range(8, 12):
        service.take(*[rank.step(step, {"time/forward": 1.0}, "sum>max") for rank in ranks[:2]])
        service.wait(70, *ranks[:2])

    [table] = [record for record in service.records if isinstance(record, Table)]
    assert table.rows[0][:5] == ("warning", "silent", 2, "", 8)
    [finding] = service.engine.findings
    assert (finding["kind"], finding["rank"], finding["level"], finding["is_over"]) == ("silent", 2, "critical", False)


def test_a_rank_that_hangs_in_the_middle_of_a_step_is_a_finding() -> None:
    service, ranks = Service(), ranks_of(3)
    steps(service, ranks, range(8))

    service.take(ranks[2].record(8, {"time/data": 1.0}, "sum>max"))
    for step in range(8, 12):
        service.take(*[rank.step(step, {"time/forward": 1.0}, "sum>max") for rank in ranks[:2]])
        service.wait(70, *ranks[:2])

    [finding] = service.engine.findings
    assert (finding["kind"], finding["rank"], finding["since"], finding["is_over"]) == ("silent", 2, 9, False)
    assert finding["level"] == "critical"


def test_a_rank_that_hung_in_a_step_and_goes_on_is_heard_again() -> None:
    service, ranks = Service(), ranks_of(3)
    steps(service, ranks, range(8))
    service.take(ranks[2].record(8, {"time/data": 1.0}, "sum>max"))
    for step in range(8, 11):
        service.take(*[rank.step(step, {"time/forward": 1.0}, "sum>max") for rank in ranks[:2]])
        service.wait(70, *ranks[:2])

    steps(service, ranks, range(11, 16))

    [finding] = service.engine.findings
    assert (finding["since"], finding["last"], finding["is_over"]) == (9, 10, True)


def test_a_rank_that_left_in_a_step_and_said_goodbye_is_no_finding() -> None:
    service, ranks = Service(), ranks_of(3)
    steps(service, ranks, range(8))
    service.take(ranks[2].record(8, {"time/data": 1.0}, "sum>max"), ranks[2].bye())
    for step in range(8, 12):
        service.take(*[rank.step(step, {"time/forward": 1.0}, "sum>max") for rank in ranks[:2]])
        service.wait(70, *ranks[:2])

    assert service.engine.findings == []


def test_a_rank_that_hangs_while_all_others_wait_for_it_in_the_same_step_is_a_finding() -> None:
    service, ranks = Service(), ranks_of(3)
    phases = {"time/load": 0.1, "time/forward": 1.0, "time/all_reduce": 0.1}
    for step in range(8):
        service.take(*[rank.step(step, phases, "sum>max") for rank in ranks])
        service.wait(1, *ranks)

    service.take(ranks[1].record(8, {"time/load": 0.1}, "sum>max"))
    service.take(*[ranks[n].record(8, {"time/load": 0.1, "time/forward": 1.0}, "sum>max") for n in (0, 2)])
    service.wait(70, *ranks)

    [finding] = service.engine.findings
    assert (finding["kind"], finding["rank"], finding["since"], finding["is_over"]) == ("silent", 1, 8, False)
    assert any("step 8" in notice and "rank 1 has not finished 'forward'" in notice for notice in service.notices)

    service.take(*[rank.record(8, {"time/all_reduce": 60.0}, "sum>max") + rank.done(8) for rank in ranks])
    for step in range(9, 12):
        service.take(*[rank.step(step, phases, "sum>max") for rank in ranks])
        service.wait(1, *ranks)
    assert [(one["rank"], one["is_over"]) for one in service.engine.findings] == [(1, True)]


def test_a_long_step_in_which_all_are_equally_far_is_no_finding() -> None:
    service, ranks = Service(), ranks_of(3)
    for step in range(8):
        service.take(*[rank.step(step, {"time/load": 0.1, "time/forward": 1.0}, "sum>max") for rank in ranks])
        service.wait(1, *ranks)

    service.take(*[rank.record(8, {"time/load": 0.1}, "sum>max") for rank in ranks])
    service.wait(70, *ranks)

    assert service.engine.findings == []


def test_a_rank_that_falls_silent_and_is_heard_again_is_named_both_times_with_its_steps() -> None:
    service, ranks = Service(), ranks_of(4)
    steps(service, ranks, range(10))
    steps(service, ranks[:3], range(10, 16))
    service.wait(60, *ranks[:3])

    steps(service, ranks, range(16, 18))
    service.wait(11, *ranks)

    assert sorted(service.rows()) == list(range(18))
    assert [said for said in service.notices if "silent" in said or "closed without" in said] == [
        "step 10 of role 'trainer' (attempt 0) closed without rank 3: nothing of it had arrived from there. "
        "(otel-ml explain step-incomplete)",
        "Rank 3 of role 'trainer' is heard again: it was silent from step 10 to 15. (otel-ml explain straggler)",
    ]
    tables = [record for record in service.records if isinstance(record, Table)]
    silent = next(table for table in tables if table.rows[0][1] == "silent")
    assert (silent.step, silent.rows[0][1:5]) == (10, ("silent", 3, "", 10))


def test_a_slow_rank_that_leaves_is_slow_up_to_its_last_step_and_costs_no_more() -> None:
    service, ranks = Service(), ranks_of(4)
    steps(service, ranks, range(30), slow=3)
    service.take(ranks[3].bye())

    steps(service, ranks[:3], range(30, 60))

    [finding] = service.engine.findings
    assert (finding["rank"], finding["since"], finding["last"], finding["is_over"]) == (3, 0, 29, True)
    assert finding["cost_s"] == pytest.approx(30.0)
    assert finding["saved_s"] == pytest.approx(1.0)
    [said] = [notice for notice in service.notices if "no longer slow" in notice]
    assert "from step 0 to 29" in said


def test_a_slow_rank_that_leaves_with_all_others_is_slow_to_the_end() -> None:
    service, ranks = Service(), ranks_of(4)
    steps(service, ranks, range(30), slow=3)
    service.take(*[rank.bye() for rank in ranks])

    assert [(one["rank"], one["last"], one["is_over"]) for one in service.engine.findings] == [(3, 29, False)]


def test_of_a_slow_rank_that_is_silent_for_a_while_only_the_steps_count_in_which_it_was_heard() -> None:
    service, ranks = Service(), ranks_of(4)
    steps(service, ranks, range(30), slow=3)
    for step in range(30, 36):
        service.take(*[rank.step(step, {"time/forward": 1.0}, "sum>max") for rank in ranks[:3]])
        service.wait(70, *ranks[:3])

    [slow] = [one for one in service.engine.findings if one["kind"] == "slow"]

    assert (slow["rank"], slow["last"], slow["is_over"]) == (3, 29, False)
    assert slow["saved_s"] == pytest.approx(1.0)


def test_a_slow_rank_that_works_in_every_tenth_step_is_slow_in_all_of_them() -> None:
    service, ranks = Service(), ranks_of(4)
    for step in range(300):
        here = ranks if step % 10 == 0 else ranks[:3]
        steps(service, here, range(step, step + 1), slow=3)

    assert [(one["rank"], one["last"], one["is_over"]) for one in service.engine.findings] == [(3, 290, False)]
    assert not [said for said in service.notices if "no longer slow" in said]


def test_a_slow_rank_that_is_killed_was_slow_up_to_its_last_step() -> None:
    service, ranks = Service(), ranks_of(4)
    steps(service, ranks, range(30), slow=3)
    service.miss(ranks[3])
    steps(service, ranks[:3], range(30, 60))

    [slow] = [one for one in service.engine.findings if one["kind"] == "slow"]
    assert (slow["rank"], slow["last"], slow["is_over"]) == (3, 29, True)
