from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_ml_exporters import Record, StepRecord, Summary
from otel_ml_service.delivery.self_telemetry_filter import LagWatch, SelfTelemetryFilter, is_count, selection_of
from otel_ml_service.telemetry import CATALOGUE

LOST = "otel_ml/lost/exporter/wandb"
LAG, DELIVERED = "otel_ml/lag/exporter/wandb", "otel_ml/delivered/exporter/wandb"

COUNTS = ("amended", "duplicate", "rejected", "too_late", "overflow", "superseded", "dropped/spool_full")


def row(seq: int, values: Mapping[str, float], *, axis: str = "time") -> StepRecord:
    return StepRecord(seq, "", axis, 10 * seq, 0, float(seq), values)


def shown(records: Sequence[Record], found: SelfTelemetryFilter | None = None) -> list[dict[str, float] | None]:
    """Return the values of each record that a backend gets, when all were committed one by one."""
    found = found or SelfTelemetryFilter()
    selected = []
    for record in records:
        found.note([record])
        chosen = found.select(record)
        assert chosen is None or isinstance(chosen, (StepRecord, Summary))
        selected.append(None if chosen is None else dict(chosen.values))
    return selected


def lagging(seq: int, delivered: float, newest: float) -> StepRecord:
    return row(seq, {DELIVERED: delivered, LAG: newest - delivered})


def test_a_healthy_run_has_nothing_of_it_and_a_row_without_a_value_of_the_user_is_not_there() -> None:
    healthy = {DELIVERED: 7.0, LAG: 3.0, LOST: 0.0, "otel_ml/step": 4.0}

    assert shown([row(1, healthy), row(2, {**healthy, "cpu/used": 0.5})]) == [
        None,
        {"otel_ml/step": 4.0, "cpu/used": 0.5},
    ]
    assert shown([Summary(3, 0.0, {"otel_ml/recorded": 9.0, "otel_ml/overhead_s": 0.1, "accuracy": 0.5})]) == [
        {"accuracy": 0.5}
    ]


@pytest.mark.parametrize("name", COUNTS)
@pytest.mark.parametrize("role", ["", "generator/"])
def test_a_count_is_there_from_the_first_that_is_not_zero_and_goes_on(name: str, role: str) -> None:
    own = f"{role}otel_ml/{name}"
    values = [shown([row(seq, {own: value}) for seq, value in enumerate((0.0, 2.0, 0.0, 3.0), 1)])]

    assert values == [[None, {own: 2.0}, {own: 0.0}, {own: 3.0}]]


def test_where_values_are_lost_the_final_values_say_of_how_many() -> None:
    final = {"otel_ml/recorded": 900.0, "otel_ml/dropped/never_arrived": 3.0}

    assert shown([Summary(1, 0.0, final)]) == [final]


def test_an_exporter_that_lacks_what_was_there_half_a_minute_ago_lags_until_it_is_seen_to_have_caught_up() -> None:
    stuck = [lagging(seq, delivered=5.0, newest=100.0 * seq) for seq in range(1, 6)]
    over = lagging(6, delivered=600.0, newest=600.0)

    lags = [None if values is None else values.get(LAG) for values in shown([*stuck, over])]

    assert lags == [None, None, None, 395.0, 495.0, 0.0]


@pytest.mark.parametrize(("apart_s", "first"), [(10, 14), (29, 13), (30, 12), (40, 12)])
def test_an_exporter_that_kept_up_and_is_stuck_lags_from_when_what_it_lacks_was_there_half_a_minute_ago(
    apart_s: int, first: int
) -> None:
    watch, behind = LagWatch(), []
    for number in range(1, 20):
        delivered, newest = 100.0 * min(number, 10), 100.0 * number  # row 11 has the first record that it lacks
        behind.append(watch.behind(apart_s * number, {DELIVERED: delivered, LAG: newest - delivered}))

    assert behind == [set()] * (first - 1) + [{LAG}] * (20 - first)


def test_an_exporter_that_keeps_up_with_what_is_always_new_does_not_lag() -> None:
    busy = [lagging(seq, delivered=1000.0 * seq - 900.0, newest=1000.0 * seq) for seq in range(1, 20)]

    assert shown(busy) == [None] * 19


def test_findings_are_not_bookkeeping() -> None:
    found = {"otel_ml/straggler/rank": 0.0, "otel_ml/straggler/excess": 0.0, "otel_ml/writers_missing": 1.0}

    assert shown([row(1, found, axis="step")]) == [found]


def test_after_a_restart_the_same_is_shown_of_the_same_records() -> None:
    records = [row(1, {LOST: 0.0}), row(2, {LOST: 4.0}), row(3, {LOST: 0.0})]
    before = SelfTelemetryFilter()
    before.note(records)

    after = SelfTelemetryFilter(before.since)

    assert [after.select(record) for record in records] == [None, records[1], records[2]]


def test_what_is_kept_of_it_is_the_same_text_until_something_is_found_that_was_not_there() -> None:
    """Whoever stores it does so where it has changed, and each row of a run that loses something tells so again."""
    late = "otel_ml/too_late"
    found = SelfTelemetryFilter()
    found.note([row(1, {LOST: 4.0, late: 2.0})])
    kept = found.since

    found.note([row(2, {late: 2.0, LOST: 5.0}), row(3, {late: 3.0})])

    assert found.since == kept == SelfTelemetryFilter(kept).since
    found.note([row(4, {"otel_ml/rejected": 1.0})])
    assert found.since != kept


def test_every_loss_of_the_catalogue_is_a_count() -> None:
    losses = [name for name, (_, meaning) in CATALOGUE.items() if "lost" in meaning or "never be accepted" in meaning]

    assert {"rejected", "dropped"} <= set(losses)
    assert all(is_count(f"otel_ml/{name}") for name in (*losses, "lost", "too_late"))


@given(
    st.lists(st.dictionaries(st.sampled_from([f"otel_ml/{name}" for name in COUNTS]), st.integers(0, 3)), max_size=8)
)
def test_no_loss_is_ever_hidden(values: list[dict[str, int]]) -> None:
    records = [row(seq, {name: float(value) for name, value in each.items()}) for seq, each in enumerate(values, 1)]

    for each, kept in zip(values, shown(records), strict=True):
        assert {name for name, value in each.items() if value} <= set(kept or ())


def test_of_a_run_that_is_over_a_backend_gets_what_it_would_have_got_while_it_went_on() -> None:
    records = [row(seq, {LOST: lost, "cpu/used": 0.5}) for seq, lost in enumerate((0.0, 3.0, 3.0), 1)]
    select = selection_of(records)

    chosen = [select(record) for record in records]

    assert [dict(record.values) for record in chosen if isinstance(record, StepRecord)] == shown(records)
