"""Which steps lack a rank."""

from __future__ import annotations

from otel_ml_exporters.records import Table
from otel_ml_service.stored_runs.missing_ranks import Silence, silences, steps_without_a_rank

COLUMNS = ("kind", "rank", "since", "until")


def test_a_silence_that_has_ended_covers_its_steps_alone() -> None:
    rows = (("silent", 3, 40, None), ("silent", 2, 31, 33), ("slow", 1, 3, 9), ("silent", None, 1, 2))

    found = silences(Table(1, 0.0, "otel_ml/findings", "step", 59, COLUMNS, rows))

    assert found == [Silence(2, 31, 33), Silence(3, 40, None)]
    assert [step for step in range(29, 36) if found[0].covers(step)] == [31, 32, 33]
    assert [step for step in (39, 40, 10**6) if found[1].covers(step)] == [40, 10**6]


def test_steps_that_were_not_recorded_lack_nobody() -> None:
    assert steps_without_a_rank(range(0, 50, 10), {10, 15}, []) == {10}
    assert steps_without_a_rank(range(0, 50, 10), {10, 15}, [Silence(2, 25, 35)]) == {10, 30}
    assert silences(None) == []
