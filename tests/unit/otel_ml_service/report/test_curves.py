"""What a chart draws, and the numbers that a page has of it."""

from __future__ import annotations

import math
from typing import Any

import pytest

from otel_ml_service.report.curves import Curve, chart, numbers, shell, strip, strip_numbers, thinned
from tests.unit.otel_ml_service.report.test_page import Reader

NAN = math.nan


def paths(figure: str) -> list[tuple[str | None, str | None]]:
    return [
        (has["class"], has["d"]) for tag, has in Reader(figure).elements if tag == "path" and has["class"] != "axis"
    ]


def labels(figure: str) -> list[tuple[str, str | None, str | None, str | None]]:
    read = Reader(figure)
    places = [has for tag, has in read.elements if tag == "text"]
    shown = read.texts[-len(places) :]
    return [(text, has["x"], has["y"], has["text-anchor"]) for text, has in zip(shown, places, strict=True)]


def points(shown: dict[str, Any]) -> list[list[float | None]]:
    [line] = shown["lines"]
    found: list[list[float | None]] = line["points"]
    return found


def test_a_line_goes_from_corner_to_corner_with_its_numbers_at_the_edges() -> None:
    figure = chart("loss", "step", [Curve("loss", {0: 0.0, 1: 1.0, 2: 2.0})])

    assert paths(figure) == [("c0", "M54.0 130.0L193.0 69.0L332.0 8.0")]
    assert labels(figure) == [
        ("2", "49", "16", "end"), ("0", "49", "130", "end"), ("0", "54", "145", "start"),
        ("step 2", "332", "145", "end"),
    ]  # fmt: skip
    [picture] = [has for tag, has in Reader(figure).elements if tag == "svg"]
    assert (picture["viewbox"], picture["aria-label"]) == ("0 0 340 150", "loss over step")
    [axis] = [has["d"] for tag, has in Reader(figure).elements if has.get("class") == "axis"]
    assert axis == "M54 8V130H332"


def test_values_that_are_the_same_are_a_line_in_the_middle_with_one_number() -> None:
    figure = chart("loss", "step", [Curve("loss", {0: 3.0, 4: 3.0, 8: 3.0 + 1e-13})])

    assert paths(figure) == [("c0", "M54.0 69.0L193.0 69.0L332.0 69.0")]
    assert labels(figure) == [
        ("3", "49", "73", "end"), ("0", "54", "145", "start"), ("step 8", "332", "145", "end"),
    ]  # fmt: skip


def test_a_single_step_is_a_dot_in_the_middle() -> None:
    figure = chart("loss", "time", [Curve("loss", {7: 3.0})])

    assert paths(figure) == [("c0 dot", "M193.0 69.0h.01")]
    assert labels(figure) == [("3", "49", "73", "end"), ("time 7 s", "193", "145", "middle")]


def test_a_value_that_is_not_finite_is_a_gap_with_a_mark_on_the_axis() -> None:
    figure = chart("loss", "step", [Curve("loss", {0: 1.0, 1: NAN, 2: 3.0, 3: 4.0})])

    assert paths(figure) == [
        ("c0", "M239.3 48.7L332.0 8.0"), ("c0 dot", "M54.0 130.0h.01"), ("hole", "M146.7 126v8"),
    ]  # fmt: skip
    assert "4 · 1 not finite" in Reader(figure).texts


def test_the_largest_doubles_are_drawn() -> None:
    figure = chart("loss", "step", [Curve("loss", {0: -1.7e308, 1: 1.7e308})])

    assert paths(figure) == [("c0", "M54.0 130.0L332.0 8.0")]


def test_curves_beyond_the_colors_are_dashed_and_each_has_its_name() -> None:
    looks = [f"c{number}" for number in range(6)]
    wanted = [*looks, *(f"{look} dashed" for look in looks), *looks[:2]]

    figure = chart("loss", "step", [Curve(f"run {number}", {0: 0.0, 1: number}) for number in range(14)])

    assert [look for look, _ in paths(figure)] == wanted
    keys = [has["class"] for tag, has in Reader(figure).elements if tag == "span" and "key" in (has.get("class") or "")]
    assert keys == [f"key {look}" for look in wanted]
    one = shell("0", "loss", ["loss"])
    two = shell("0", "loss", ["mine", "other"], is_strip=True)
    assert "legend" not in one
    assert 'class="chart"' in one
    assert 'class="chart short"' in two
    assert [text for text in Reader(two).texts if text.strip()] == ["loss", "mine", "other"]


@pytest.mark.parametrize(
    ("count", "most", "kept"),
    [
        (10, 10, list(range(10))),
        (11, 10, [0, 2, 3, 5, 6, 8, 9, 10]),
        (1000, 10, [0, 199, 200, 399, 400, 599, 600, 799, 800, 999]),
    ],
)
def test_of_many_points_the_lowest_and_the_highest_of_each_stretch_are_kept(
    count: int, most: int, kept: list[int]
) -> None:
    series = {step: float(step) for step in range(count)}

    assert thinned(series, most) == [(step, float(step)) for step in kept]


def test_a_stretch_without_a_finite_value_is_its_first_point() -> None:
    series = {step: NAN if 5 <= step < 10 else float(-abs(step - 2)) for step in range(20)}

    found = thinned(series, 8)

    assert [step for step, _ in found] == [0, 2, 5, 10, 14, 15, 19]
    assert math.isnan(dict(found)[5])


def test_a_strip_has_the_steps_at_which_another_rank_came_and_the_last_one() -> None:
    shown = strip_numbers("time/forward/argmax", "step", {0: 2.0, 1: 2.0, 2: 0.0, 3: NAN, 4: 0.0, 5: 2.0, 6: 2.0})

    assert points(shown) == [[0, 2.0], [2, 0.0], [5, 2.0], [6, 2.0]]
    assert (shown["said"], shown["kind"], shown["axis"], shown["unit"]) == ("mostly rank 2", "strip", "step", "")
    nobody = strip_numbers("time/forward/argmax", "step", {0: NAN})
    assert (points(nobody), nobody["said"]) == ([], "")
    assert "mostly rank 2" in Reader(strip("argmax", "step", {0: 2.0})).texts


def test_what_is_new_of_a_chart_comes_alone() -> None:
    series = {0: 1.0, 1: NAN, 2: 3.0, 3: math.inf, 4: 5.0}

    every, new = (numbers("loss", "step", [Curve("loss", series)], after) for after in (None, 2))
    none = numbers("loss", "step", [Curve("loss", series)], 4)

    assert points(every) == [[0, 1.0], [1, None], [2, 3.0], [3, None], [4, 5.0]]
    assert points(new) == [[3, None], [4, 5.0]]
    assert points(none) == []
    assert [shown["holes"] for shown in (every, new, none)] == [2, 1, 0]
    assert [shown["said"] for shown in (every, new, none)] == ["5", "5", "5"]
    assert [shown["from"] for shown in (every, new, none)] == [None, 2, 4]
    several = numbers("loss", "step", [Curve("a", series), Curve("b", series)])
    assert several["said"] == ""


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ([0.123456789, 1.0], [0.123457, 1.0]),
        ([123456.789, 123456.789], [123457.0, 123457.0]),
        ([1000000.0, 1000000.12345678, 1000001.0], [1000000.0, 1000000.1235, 1000001.0]),
        ([0.0, 12345678.9], [0.0, 12345700.0]),
    ],
)
def test_a_page_has_as_many_digits_as_tell_values_apart(values: list[float], shown: list[float]) -> None:
    found = numbers("loss", "step", [Curve("loss", dict(enumerate(values)))])

    assert [value for _, value in points(found)] == shown


def test_numbers_at_the_edges_that_would_be_the_same_are_told_apart() -> None:
    figure = chart("loss", "step", [Curve("loss", {0: 1.0, 1: 1.0000001})])

    assert [text for text, *_ in labels(figure)] == ["+1e-07", "1", "0", "step 1"]


def test_what_has_a_unit_is_told_with_it() -> None:
    figure = chart("time/forward", "step", [Curve("time/forward", {0: 0.5, 1: 0.25})])

    assert [text for text, *_ in labels(figure)] == ["500 ms", "250 ms", "0", "step 1"]
    assert "250 ms" in Reader(figure).texts
