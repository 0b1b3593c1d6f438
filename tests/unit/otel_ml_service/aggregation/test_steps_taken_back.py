"""Closed steps that come back from the disk for what is late, and go there again (ADR 0035)."""

from __future__ import annotations

import pytest

from otel_ml_exporters.records import HistogramValue
from otel_ml_service.aggregation.settings import EngineSettings
from tests.strategies import Rank, Service


@pytest.mark.parametrize("restarts", [False, True])
def test_a_step_that_is_corrected_again_and_again_takes_no_more_room_than_once(restarts: bool) -> None:
    """Else its corrections would push all other steps out of what is kept."""
    service, rank = Service(EngineSettings(retained_steps=1, closed_bytes=60_000)), Rank(0)
    for step in range(10):
        service.take(rank.step(step, {"x": 1.0}, "sum"))

    for number in range(60):
        if restarts and number % 20 == 10:
            service.restart()
        service.take(rank.step(3, {"x": 1.0}, "sum"))
        service.take(rank.step(4, {"x": 1.0}, "sum"))
    service.take(rank.step(0, {"x": 5.0}, "sum"))

    assert service.engine.status.lost == {}
    assert [service.rows()[step]["x"] for step in (0, 1, 3, 4)] == [6.0, 1.0, 61.0, 61.0]


@pytest.mark.parametrize(("buckets", "bins"), [(511, 511), (512, 512), (513, 257), (1026, 257), (60_000, 469)])
def test_a_histogram_has_as_many_bins_as_a_backend_takes_and_no_more(buckets: int, bins: int) -> None:
    service, rank = Service(), Rank(0)
    first, last = 2.0 ** (0.5 / 64), 2.0 ** ((buckets - 0.5) / 64)

    service.take(rank.record(0, {"w": [first, last]}, "histogram"), rank.done(0))

    [shown] = [record for record in service.records if isinstance(record, HistogramValue)]
    assert len(shown.edges) == len(shown.counts) + 1
    assert len(shown.counts) == bins
    assert (shown.counts[0], shown.counts[-1], sum(shown.counts)) == (1.0, 1.0, 2.0)
    assert shown.edges[0] <= first
    assert shown.edges[-1] >= last
