from __future__ import annotations

import math
import sys

from hypothesis import example, given
from hypothesis import strategies as st

from otel_ml_service.cli.plot import plot, spark

floats = st.floats() | st.sampled_from([math.nan, -sys.float_info.max, sys.float_info.max])


@given(
    values=st.lists(floats, min_size=1, max_size=200),
    width=st.integers(10, 120),
    height=st.integers(2, 30),
    log=st.booleans(),
)
@example(values=[1.0, sys.float_info.max], width=40, height=6, log=True)
def test_a_plot_of_anything_fits_its_rectangle(values: list[float], width: int, height: int, log: bool) -> None:
    lines = plot(range(len(values)), values, width=width, height=height, log=log)

    if any(math.isfinite(value) and (value > 0 or not log) for value in values):
        assert len(lines) == height + 2
        assert len({len(line) for line in lines[: height + 1]}) == 1
    else:
        assert lines == ["no finite value to draw"]


def test_the_extremes_are_at_the_top_and_at_the_bottom() -> None:
    lines = plot([0, 1, 2], [5.0, -1.0, 5.0], width=40, height=6)

    assert lines[0].lstrip().startswith("5 ┤")
    assert lines[5].lstrip().startswith("-1 ┤")
    assert set(lines[2].partition("┤")[2]) != {"\u2800"}


def test_a_nan_is_a_gap_and_not_a_line_to_somewhere() -> None:
    whole = plot([0, 1, 2], [1.0, 1.0, 1.0], width=40, height=2)
    gap = plot([0, 1, 2], [1.0, math.nan, 1.0], width=40, height=2)

    assert sum(line.count("\u2800") for line in gap) > sum(line.count("\u2800") for line in whole)


def test_a_logarithmic_axis_makes_a_decay_a_straight_line() -> None:
    lines = plot([0, 1, 2], [100.0, 10.0, 1.0], width=40, height=5, log=True)

    assert lines[2].lstrip().startswith("10 ┤")


@given(values=st.lists(floats, min_size=1, max_size=20), height=st.integers(2, 9))
def test_a_logarithmic_axis_is_labeled_up_to_the_largest_double(values: list[float], height: int) -> None:
    positive = [value for value in values if value > 0 and math.isfinite(value)]

    lines = plot(range(len(values)), values, width=60, height=height, log=True)

    if positive:
        assert lines[0].partition("┤")[0].strip() == f"{max(positive):.3g}"
        assert lines[height - 1].partition("┤")[0].strip() == f"{min(positive):.3g}"


@given(values=st.lists(floats, max_size=300), width=st.integers(1, 60))
def test_a_spark_is_never_wider_than_asked_for(values: list[float], width: int) -> None:
    assert len(spark(values, width)) == min(len(values), width)


def test_a_plot_is_as_wide_as_a_terminal_and_ten_lines_high_where_nobody_says() -> None:
    *lines, rule, foot = plot([0.0, 1.0], [0.0, 1.0])

    assert len(lines) == 10
    assert {len(line) for line in lines} == {78}
    assert max(len(rule), len(foot)) <= 80
