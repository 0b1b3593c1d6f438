"""How values of a step are written for a person."""

from __future__ import annotations

import pytest

from otel_ml_exporters.telling_metrics import significant


@pytest.mark.parametrize(
    ("value", "digits", "written"),
    [(999.96, 4, "1000"), (99.996, 4, "100.0"), (-999.99, 4, "-1000"), (0.96, 1, "1"), (3e-7, 1, "3e-07")],
)
def test_a_value_that_is_rounded_up_to_a_whole_number_ends_in_a_digit(value: float, digits: int, written: str) -> None:
    assert significant(value, digits) == written
