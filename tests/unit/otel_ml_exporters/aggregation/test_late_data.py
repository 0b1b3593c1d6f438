"""CONTRACT §5 «Late data»: never dropped silently."""

from __future__ import annotations

import math

import pytest

from otel_ml_exporters.aggregation.settings import EngineSettings
from otel_ml_exporters.records import HistogramValue
from tests.strategies import Rank, Service


@pytest.fixture
def late_rank() -> tuple[Service, Rank, Rank]:
    """Return a service that closed step 4 without rank 1, rank 0, and rank 1."""
    service, fast, slow = Service(), Rank(0, world_size=2), Rank(1, world_size=2)
    for step in range(4):
        service.take(fast.step(step, {"x": 1.0}), slow.step(step, {"x": 1.0}))
    service.take(fast.step(4, {"x": 1.0}))
    service.wait(11, fast, slow)
    assert 4 in service.rows()
    return service, fast, slow


def test_a_late_value_that_changes_what_was_exported_is_an_amendment(late_rank: tuple[Service, Rank, Rank]) -> None:
    service, fast, slow = late_rank

    service.take(slow.step(4, {"x": 3.0}))
    service.take(fast.step(5, {"x": 0.0}))

    amended = [record for record in service.steps() if record.amendment]
    assert [(record.step, dict(record.values), record.writers_missing) for record in amended] == [(4, {"x": 2.0}, 0)]
    assert service.rows(own=True)[5]["otel_ml/amended"] == 1.0
    assert service.rows(own=True)[4]["otel_ml/writers_missing"] == 1.0


def test_a_late_new_metric_is_simply_exported_and_not_counted(late_rank: tuple[Service, Rank, Rank]) -> None:
    service, _, slow = late_rank

    service.take(slow.step(4, {"y": 3.0}))

    assert service.rows()[4] == {"x": 1.0, "y": 3.0}
    assert service.engine.status.counts.amended == 0


def test_a_late_value_that_changes_nothing_is_not_exported(late_rank: tuple[Service, Rank, Rank]) -> None:
    service, _, slow = late_rank

    service.take(slow.step(4, {"x": 1.0}))

    assert service.amendments == 0
    counts = service.engine.status.counts
    assert counts.closed == counts.received


def test_amendments_are_coalesced_until_the_missing_manifest_is_complete(late_rank: tuple[Service, Rank, Rank]) -> None:
    service, fast, slow = late_rank

    for _ in range(5):
        service.take(slow.record(4, {"x": 2.0}))
        service.wait(1, fast, slow)
    assert service.amendments == 0
    service.take(slow.done(4))

    assert service.amendments == 1
    assert service.rows()[4] == {"x": 11 / 6}


def test_amendments_go_out_once_per_allowed_lateness_without_a_manifest(late_rank: tuple[Service, Rank, Rank]) -> None:
    service, fast, slow = late_rank

    service.take(slow.record(4, {"x": 2.0}))
    service.wait(11, fast, slow)

    assert service.amendments == 1


def test_a_step_that_never_was_is_exported_late() -> None:
    service, rank = Service(), Rank(0)
    service.take(rank.step(100, {"x": 1.0}))

    service.take(rank.step(7, {"x": 7.0}))

    assert service.rows() == {100: {"x": 1.0}, 7: {"x": 7.0}}
    assert [record.amendment for record in service.steps()] == [False, True]
    assert service.engine.status.counts.amended == 0


def test_what_comes_after_the_fold_state_is_gone_is_handed_over_and_counted() -> None:
    service, rank = Service(EngineSettings(retained_steps=3, closed_bytes=0)), Rank(0)
    for step in range(6):
        service.take(rank.step(step, {"x": 1.0}))

    (late,) = rank.record(1, {"x": 9.0})
    service.take([late])

    assert service.outcomes[-1].too_late == (late,)
    assert service.engine.status.lost == {"too_late": 1}
    assert service.rows()[1] == {"x": 1.0}
    service.take(rank.step(6, {"x": 1.0}))
    assert service.rows(own=True)[6]["otel_ml/too_late"] == 1.0


def test_kept_fold_state_is_bounded_in_bytes() -> None:
    service, rank = Service(EngineSettings(retained_bytes=10_000)), Rank(0)

    for step in range(200):
        service.take(rank.step(step, {"x": 1.0}))

    assert service.engine.status.retained_bytes <= 10_000
    assert sum(len(value) for key, value in service.state.items() if key.startswith("unit/")) < 40_000


def test_a_larger_manifest_of_an_old_step_amends_it() -> None:
    service, rank = Service(), Rank(0)
    service.take(rank.step(3, {"x": 1.0}), rank.step(4, {"x": 1.0}))

    service.take(rank.record(3, {"x": 3.0}))
    service.take(rank.done(3))

    assert service.rows()[3] == {"x": 2.0}
    assert service.amendments == 1


def test_nan_that_stays_nan_is_no_amendment(late_rank: tuple[Service, Rank, Rank]) -> None:
    service, fast, slow = late_rank
    service.take(fast.step(5, {"x": math.nan}))
    service.wait(11, fast, slow)

    service.take(slow.step(5, {"x": 1.0}))

    assert math.isnan(service.rows()[5]["x"])
    assert service.amendments == 0


def test_a_histogram_is_amended_too() -> None:
    service, rank = Service(), Rank(0)
    service.take(rank.record(3, {"w": [1.0, 2.0]}, "histogram"), rank.done(3))

    service.take(rank.record(3, {"w": [3.0]}, "histogram"), rank.done(3))

    histograms = [record for record in service.records if isinstance(record, HistogramValue)]
    assert [sum(record.counts) for record in histograms] == [2.0, 3.0]
    assert [record.name for record in histograms] == ["w", "w"]
