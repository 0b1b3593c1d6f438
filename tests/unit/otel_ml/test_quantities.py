"""What people read of durations, bytes and shares is short, in the unit that fits, and true to three figures."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_ml.quantities import figure, percent, quantity, seconds, size

_PARTS = {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_BYTES = {"B": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "PB": 1e15}


@pytest.mark.parametrize(
    ("value", "read"),
    [
        (0.0251, "25.1 ms"), (1.8, "1.8 s"), (200, "3 min 20 s"), (0.0, "0 s"), (0.99996, "1 s"), (59.97, "1 min"),
        (59.94, "59.9 s"), (3599.7, "1 h"), (86_399, "1 d"), (90_000, "1 d 1 h"), (-75, "-1 min 15 s"),
        (9e-7, "900 ns"),
    ],
)  # fmt: skip
def test_a_duration_is_told_in_the_unit_that_fits(value: float, read: str) -> None:
    assert seconds(value) == read


def test_bytes_shares_and_rates_are_told_in_three_figures() -> None:
    assert [size(value) for value in (0, 999, 1.2e9, 999_600, 3.4e18)] == ["0 B", "999 B", "1.2 GB", "1 MB", "3,400 PB"]
    assert [percent(value) for value in (0.7, 0.63412, 0.0004, 12.8)] == ["70 %", "63.4 %", "0.04 %", "1,280 %"]
    assert [figure(value) for value in (5.0, 20.345, 1_330_402.0)] == ["5", "20.3", "1,330,000"]
    assert [quantity(12_345, "J"), quantity(1980.0, "MHz")] == ["12.3 kJ", "1,980 MHz"]


@given(st.floats(1e-9, 1e7))
def test_a_duration_that_is_read_back_is_the_same_in_three_figures(value: float) -> None:
    parts = re.findall(r"([\d,.]+) (\w+)", read := seconds(value))

    assert " ".join(f"{number} {unit}" for number, unit in parts) == read
    back = sum(float(number.replace(",", "")) * _PARTS[unit] for number, unit in parts)
    assert back == pytest.approx(value, rel=0.021 if value >= 60 else 0.0051)  # 1 d: whole hours
    assert all(float(number.replace(",", "")) < 1000 for number, _ in parts)


@given(st.floats(1, 9e17))
def test_bytes_that_are_read_back_are_the_same_in_three_figures(value: float) -> None:
    number, unit = size(value).split()

    assert float(number) * _BYTES[unit] == pytest.approx(value, rel=0.0051)
