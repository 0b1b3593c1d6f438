from __future__ import annotations

import json
import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from otel_ml_exporters.backends.wandb.names import identifier
from otel_ml_exporters.backends.wandb.rows import fitting, plain, step_row, step_values
from otel_ml_exporters.records import StepRecord


def record(values: dict[str, float], **changed: object) -> StepRecord:
    fields: dict[str, object] = {"seq": 1, "role": "trainer", "axis": "step", "step": 3, "attempt": 1, "time": 2.5}
    return StepRecord(values=values, **{**fields, **changed})


def row_of(record: StepRecord) -> dict[str, Any]:
    return step_row(record, step_values(record))


def test_a_row_has_the_axis_the_attempt_and_the_time_of_the_record() -> None:
    assert row_of(record({"rollout/reward": 1.0}, axis="rollout")) == {
        "rollout/reward": 1.0,
        "otel_ml/rollout": 3,
        "otel_ml/attempt": 1,
        "_timestamp": 2.5,
    }


def test_an_amendment_is_marked() -> None:
    assert row_of(record({"loss": 1.0}, amendment=True))["otel_ml/amendment"] == 1


def test_a_name_that_the_client_would_overwrite_is_moved() -> None:
    assert row_of(record({"_step": 7.0, "_x": 8.0})).items() >= {"metric/_step": 7.0, "_x": 8.0}.items()


def test_a_value_that_is_no_number_does_not_cost_the_row() -> None:
    row = row_of(record({"odd": object(), "loss": 1.0, "big": 2**70}))

    assert (row["loss"], row["big"]) == (1.0, 2.0**70)
    assert row["odd"].startswith("<object")


def test_a_row_above_the_limit_keeps_its_place_and_says_how_much_is_left_out() -> None:
    row = row_of(record({f"metric_{at}": float(at) for at in range(100)}))

    kept, left_out = fitting(row, limit=2000)

    assert kept.items() <= row.items()
    assert {"otel_ml/step", "otel_ml/attempt", "_timestamp", "metric_0"} <= kept.keys()
    assert len(kept) + left_out == len(row)
    assert len(json.dumps(kept)) <= 2000


def test_a_row_within_the_limit_is_not_touched() -> None:
    row = row_of(record({"loss": 0.5}))

    assert fitting(row) == (row, 0)


def test_config_and_summary_keep_what_json_has_no_word_for() -> None:
    given_values = {"a": math.nan, "b": [math.inf, -math.inf], 3: {"c": object}, "d": None, "e": True, "f": 0.5}

    assert plain(given_values) == {
        "a": "NaN",
        "b": ["Infinity", "-Infinity"],
        "3": {"c": "<class 'object'>"},
        "d": None,
        "e": True,
        "f": 0.5,
    }


@given(st.text(), st.text())
def test_identifiers_are_accepted_and_differ_where_their_texts_do(one: str, other: str) -> None:
    assert all(char.isascii() and (char.isalnum() or char in "_.-") for char in identifier(one))
    assert 0 < len(identifier(one)) <= 64
    assert (identifier(one) == identifier(other)) == (one == other)
