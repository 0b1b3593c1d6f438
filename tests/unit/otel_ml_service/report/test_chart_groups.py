"""Which charts stand together, and in which order."""

from __future__ import annotations

import re

import pytest

from otel_ml_service.report.chart_groups import bookkeeping_section, curve_section, drawn, in_order
from otel_ml_service.report.curves import Curve
from otel_ml_service.report.markup import Markup, tag
from otel_ml_service.stored_runs.run_history import SeriesName
from tests.unit.otel_ml_service.report.test_page import Reader


def key(name: str, axis: str = "step") -> SeriesName:
    return SeriesName(axis, name)


def charts_of(*keys: SeriesName) -> dict[SeriesName, list[Curve]]:
    return {one: [Curve(one.name, {0: 1.0, 1: 2.0})] for one in keys}


def named(key: SeriesName, curves: object) -> Markup:
    return tag("i", key.name)


def groups(*keys: SeriesName, most: int = 80) -> list[tuple[str, bool]]:
    """Return the titles of the groups, and whether each is open."""
    read = Reader(curve_section(charts_of(*keys), named, most))
    opened = ["open" in has for tag, has in read.elements if tag == "details"]
    titles = [text for text in read.texts if text.endswith(")")]
    return list(zip(titles, opened, strict=False))


def test_what_a_user_recorded_comes_first_then_timers_then_time_then_families_then_ours() -> None:
    families = [key(f"layer {number}/norm") for number in range(40)]
    mixed = [
        key("otel_ml/lag"), *families[::-1], key("hw.power", "time"), key("time/forward"), key("loss"), key("acc"),
    ]  # fmt: skip

    found = in_order(mixed)

    assert [one.name for one in found[:4]] == ["acc", "loss", "time/forward", "hw.power"]
    assert found[4:-1] == families
    assert found[-1].name == "otel_ml/lag"


def test_layers_are_in_the_order_of_their_numbers() -> None:
    assert [one.name for one in in_order([key("layer 10"), key("layer 2"), key("layer 1")])] == [
        "layer 1", "layer 2", "layer 10",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("first", "title"),
    [
        (key("train/loss"), "train (2)"),
        (key("train/loss", "time"), "train (2)"),
        (key("train/loss", "eval"), "train, eval (2)"),
        (key("eval/loss", "eval"), "eval (2)"),
        (key("loss"), "metrics (2)"),
        (key("loss", "time"), "over time (2)"),
        (key("loss", "eval"), "eval (2)"),
        (key("time/exposed/forward"), "time/exposed (2)"),
    ],
)
def test_charts_stand_together_by_what_their_names_begin_with(first: SeriesName, title: str) -> None:
    second = SeriesName(first.axis, first.name + "2")
    others = [key("other/a"), key("other/b")]

    assert title in [name for name, _ in groups(first, second, *others)]


def test_single_charts_are_put_together_and_come_first() -> None:
    assert groups(key("b/x"), key("b/y"), key("a/x"), key("c/x")) == [("metrics (2)", True), ("b (2)", True)]


def test_a_group_alone_has_no_title() -> None:
    assert groups(key("a"), key("b")) == []
    assert "loss" in curve_section(charts_of(key("loss")), named, 80)


def test_large_groups_and_the_account_of_steps_are_closed() -> None:
    large, small = [key(f"large/{number}") for number in range(60)], [key("small/a"), key("small/b")]
    account = [key("time/exposed/a"), key("time/exposed/b")]

    assert groups(*large, *small, *account) == [
        ("large (60)", False), ("small (2)", True), ("time/exposed (2)", False),
    ]  # fmt: skip


def test_of_more_charts_than_a_page_has_the_last_values_are_listed() -> None:
    keys = [key(f"m/{number}") for number in range(5)]

    read = Reader(curve_section(charts_of(*keys), named, 3))

    assert [text for text in read.texts if text.startswith("m/")] == [f"m/{number}" for number in range(5)]
    assert read.texts[-7:] == ["2 more", "series", "last value", "m/3", "2", "m/4", "2"]
    assert not re.findall(r"\d+ more", curve_section(charts_of(*keys), named, 5))


def test_what_otel_ml_says_of_itself_is_a_part_of_its_own() -> None:
    charts = charts_of(key("loss"), key("otel_ml/lag"))

    assert Reader(bookkeeping_section(charts, named)).texts == ["What otel_ml says about itself", "otel_ml/lag"]
    assert bookkeeping_section(charts_of(key("loss")), named) == ""
    assert "otel_ml/lag" not in curve_section(charts, named, 80)
    assert curve_section(charts_of(key("otel_ml/lag")), named, 80) == ""


def test_who_it_was_is_a_strip_for_each_run() -> None:
    strips = drawn(key("time/forward/argmax"), [Curve("run a", {0: 1.0}), Curve("run b", {0: 2.0})])

    assert [text for text in Reader(strips).texts if text.strip()] == [
        "time/forward/argmax, run a", "mostly rank 1", "time/forward/argmax, run b", "mostly rank 2",
    ]  # fmt: skip
    assert "time/forward/argmax, " not in drawn(key("time/forward/argmax"), [Curve("run a", {0: 1.0})])
    assert "<svg" in drawn(key("time/forward"), [Curve("run a", {0: 1.0})])
