"""docs/protocol.md §5.6: never dropped silently."""

from __future__ import annotations

import math

import pytest

from otel_ml_exporters.records import HistogramValue
from otel_ml_service.aggregation import interned_series
from otel_ml_service.aggregation.engine import Engine
from otel_ml_service.aggregation.settings import EngineSettings
from otel_ml_service.aggregation.training_clock import MAX_ENTRIES
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


@pytest.mark.parametrize("retained_steps", [1, 1024], ids=["on the disk", "in memory"])
def test_a_histogram_that_nothing_came_for_is_not_sent_again(retained_steps: int) -> None:
    service, rank = Service(EngineSettings(retained_steps=retained_steps)), Rank(0)
    for step in range(4):
        service.take(rank.record(step, {"w": [1.0, 2.0]}, "histogram"), rank.step(step, {"x": 1.0}))
    before = len(service.records)

    service.take(rank.step(1, {"y": 3.0}))
    service.take(rank.record(0, {"w": [9.0]}, "histogram"), rank.done(0))
    service.wait(15, rank)

    told = [(record.step, isinstance(record, HistogramValue)) for record in service.records[before:]]  # type: ignore[union-attr]
    assert told == [(1, False), (0, True)]


def test_a_correction_that_waits_goes_out_before_its_step_leaves_memory() -> None:
    service = Service(EngineSettings(retained_bytes=1_000))
    ranks = [Rank(rank, world_size=2) for rank in range(2)]
    for step in range(4):
        service.take(*[rank.step(step, {"x": 1.0}) for rank in ranks])
    service.take(ranks[0].step(4, {"x": 1.0}))
    service.wait(61, *ranks)
    service.take(ranks[1].record(4, {"x": 3.0}))  # and perhaps more: its end has not arrived
    assert service.rows()[4] == {"x": 1.0}

    service.take(*[rank.step(5, {"x": 1.0, "y": 1.0, "z": 1.0}) for rank in ranks])

    assert service.rows()[4] == {"x": 2.0}
    counts = service.engine.status.counts
    assert (counts.waiting, counts.amended, counts.received) == (0, 1, counts.closed)
    service.take(ranks[1].record(4, {"x": 5.0}), ranks[1].done(4))
    service.wait(11, *ranks)
    assert service.rows()[4] == {"x": 3.0}


ON_DISK = EngineSettings(retained_steps=3)
FORGOTTEN = EngineSettings(retained_steps=3, closed_bytes=0)
HOURS_LATER = EngineSettings(retained_steps=3, closed_s=5.0)


def long_ago(settings: EngineSettings, **values: float) -> tuple[Service, Rank]:
    """Return a service that closed 1,100 steps, and their rank."""
    service, rank = Service(settings), Rank(0)
    for step in range(1_100):
        service.now += 0.01
        rank.clock = service.now
        service.take(rank.step(step, {"x": 1.0, **values}))
    return service, rank


@pytest.mark.parametrize("settings", [EngineSettings(), ON_DISK, FORGOTTEN, HOURS_LATER])
@pytest.mark.parametrize("restarts", [False, True])
def test_a_metric_that_a_step_does_not_have_lands_however_late_it_comes(
    settings: EngineSettings, restarts: bool
) -> None:
    service, rank = long_ago(settings)

    if restarts:
        service.restart()
    service.take(rank.step(7, {"eval/acc": 0.5}))
    service.wait(11, rank)

    assert service.rows()[7] == {"x": 1.0, "eval/acc": 0.5}
    assert service.engine.status.lost == {}
    assert service.engine.status.counts.amended == 0


@pytest.mark.parametrize("restarts", [False, True])
def test_a_value_of_a_metric_that_a_step_has_is_folded_with_what_the_disk_holds(restarts: bool) -> None:
    service, rank = long_ago(ON_DISK, y=2.0)

    for value in (4.0, 7.0):
        if restarts:
            service.restart()
        service.take(rank.step(7, {"x": value}))
        service.wait(11, rank)

    amended = [(record.step, dict(record.values)) for record in service.steps() if record.amendment]
    assert amended == [(7, {"x": 2.5}), (7, {"x": 4.0})]
    assert service.engine.status.counts.amended == 2


@pytest.mark.parametrize("settings", [FORGOTTEN, HOURS_LATER])
@pytest.mark.parametrize("restarts", [False, True])
def test_of_what_comes_when_the_disk_has_forgotten_the_step_what_it_has_is_too_late_and_what_it_has_not_lands(
    settings: EngineSettings, restarts: bool
) -> None:
    service, rank = long_ago(settings)
    service.wait(6, rank)

    for value in (4.0, 7.0):
        if restarts:
            service.restart()
        service.take(rank.step(7, {"eval/acc": value, "x": value}))
        service.wait(11, rank)

    late = [fragment for outcome in service.outcomes for fragment in outcome.too_late]
    assert [[key.name for key in fragment.partials.series] for fragment in late] == [["x"], ["x"]]
    assert [float(fragment.partials.stats[0, 1]) for fragment in late] == [4.0, 7.0]
    assert service.rows()[7] == {"x": 1.0, "eval/acc": 5.5}
    assert service.engine.status.lost == {"too_late": 2}
    counts = service.engine.status.counts
    assert counts.received == counts.closed + counts.too_late


def test_a_step_that_never_was_lands_below_everything_that_is_forgotten() -> None:
    service, rank = Service(FORGOTTEN), Rank(0)
    for step in range(100, 200, 10):
        service.take(rank.step(step, {"x": 1.0}))

    service.take(rank.step(115, {"x": 5.0}), rank.step(120, {"x": 5.0}))

    assert service.rows()[115] == {"x": 5.0}
    assert service.rows()[120] == {"x": 1.0}


def test_each_rank_of_a_metric_by_rank_is_a_series_of_its_own() -> None:
    service, ranks = Service(FORGOTTEN), [Rank(0), Rank(1)]
    for step in range(10):
        service.take(ranks[0].step(step, {"x": 1.0}, "rank"))

    service.take(ranks[1].step(2, {"x": 5.0}, "rank"), ranks[0].step(2, {"x": 6.0}, "rank"))
    service.wait(11, *ranks)

    assert service.rows()[2] == {"x/rank_0": 1.0, "x/rank_1": 5.0}
    assert service.engine.status.lost == {"too_late": 1}


def test_what_is_on_the_disk_is_bounded_in_bytes_and_the_series_of_all_steps_take_next_to_nothing() -> None:
    service, rank = Service(EngineSettings(retained_steps=3, closed_bytes=10_000)), Rank(0)
    for step in range(3_000):
        service.take(rank.step(step, {"x": 1.0}))

    kept = {key: value for key, value in service.state.items() if key.startswith("disk/")}
    points = sum(len(value) for key, value in kept.items() if key.startswith("disk/points/"))
    names = sum(len(value) for key, value in kept.items() if key.startswith("disk/names/"))
    assert 5_000 < points <= 12_000
    assert names < 1_000
    service.take(rank.step(0, {"x": 2.0, "y": 2.0}))
    service.wait(11, rank)
    assert service.rows()[0] == {"x": 1.0, "y": 2.0}


def test_a_start_reads_only_what_is_in_memory() -> None:
    service, rank = long_ago(ON_DISK)
    asked: list[str] = []

    def kept(key: str) -> bytes | None:
        asked.append(key)
        return service.state.get(key)

    state = {key: value for key, value in service.state.items() if not key.startswith("disk/")}
    service.engine = Engine("exp", ON_DISK, state, kept=kept)

    clock = [key for key in state if key.startswith("training/")]
    assert len(clock) <= MAX_ENTRIES // 64
    assert len(state) - len(clock) < 20
    assert len(asked) == 3
    service.take(rank.step(7, {"x": 3.0}))
    assert service.rows()[7] == {"x": 2.0}


def test_shapes_that_only_the_disk_uses_leave_memory_and_are_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interned_series, "MAX_IDLE", 8)
    service, rank = Service(EngineSettings(retained_steps=3, closed_bytes=60_000)), Rank(0)
    for step in range(200):
        service.take(rank.step(step, {f"x{step}": 1.0, "y": 2.0}))
    assert len(service.engine._run.shapes.known) < 20

    service.restart()
    service.take(rank.step(7, {"x7": 3.0, "z": 1.0}))
    service.wait(11, rank)
    assert service.rows()[7] == {"x7": 2.0, "y": 2.0, "z": 1.0}
    for step in range(200, 900):
        service.take(rank.step(step, {f"x{step}": 1.0, "y": 2.0}))
    service.take(rank.step(7, {"x7": 3.0, "new": 1.0}))
    service.wait(11, rank)

    assert service.rows()[7] == {"x7": 2.0, "y": 2.0, "z": 1.0, "new": 1.0}
    assert sum(key.startswith("disk/shape/") for key in service.state) < 400


def test_late_points_of_one_rank_wait_for_those_that_another_ranks_manifest_tells_of() -> None:
    service, ranks = Service(), [Rank(rank, world_size=2) for rank in range(2)]
    held_back = []
    for rank in ranks:
        service.take(rank.record(0, {"x": 1.0}))
        held_back.append(rank.record(0, {"y": float(rank.writer.rank)}))
        service.take(rank.done(0))
    service.wait(12, *ranks)  # it is not waited for any longer: the step closes
    assert service.rows() == {0: {"x": 1.0}}

    service.take(held_back[1])
    assert service.amendments == 0
    service.take(held_back[0])

    assert service.amendments == 1
    assert service.rows() == {0: {"x": 1.0, "y": 0.5}}
