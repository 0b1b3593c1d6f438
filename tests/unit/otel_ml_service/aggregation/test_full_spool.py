"""What a full spool dropped after a watermark had counted it: the step waits for the allowed lateness, and no longer.

A watermark cannot shrink («the largest wins»), and need not: closing asks whether every running number below it has
arrived or was given up, not whether its points add up (ADR 0011).
"""

from __future__ import annotations

from tests.strategies import Rank, Service


def test_points_dropped_after_their_manifest_was_sent_delay_the_step_once_and_not_for_ever() -> None:
    service, ranks = Service(), [Rank(rank, world_size=2) for rank in range(2)]
    for step in range(5):
        service.take(*[rank.step(step, {"x": 1.0}, "sum") for rank in ranks])
    lost = [ranks[1].record(step, {"x": 1.0}, "sum") for step in range(5, 9)]  # never arrives
    manifests = [ranks[1].done(step) for step in range(5, 9)]
    for step in range(5, 9):
        service.take(ranks[0].step(step, {"x": 1.0}, "sum"), manifests[step - 5])
    service.take(*[rank.step(9, {"x": 1.0}, "sum") for rank in ranks])
    assert [record.step for record in service.steps()] == list(range(5)), "the gap is waited for"

    service.wait(11, *ranks)

    assert len(lost) == 4
    assert [record.step for record in service.steps()] == list(range(10))
    assert [service.rows()[step]["x"] for step in (4, 5, 8, 9)] == [2.0, 1.0, 1.0, 2.0]
    service.take(*[rank.step(10, {"x": 1.0}, "sum") for rank in ranks])
    assert service.steps()[-1].step == 10, "and one gap is waited for once"


def test_a_manifest_that_was_dropped_with_its_points_delays_the_step_once_too() -> None:
    service, ranks = Service(), [Rank(rank, world_size=2) for rank in range(2)]
    for step in range(5):
        service.take(*[rank.step(step, {"x": 1.0}, "sum") for rank in ranks])
    ranks[1].step(5, {"x": 1.0}, "sum")  # never arrives
    service.take(ranks[0].step(5, {"x": 1.0}, "sum"), *[rank.step(6, {"x": 1.0}, "sum") for rank in ranks])
    assert service.steps()[-1].step == 4

    service.wait(11, *ranks)

    assert [record.step for record in service.steps()] == list(range(7))
