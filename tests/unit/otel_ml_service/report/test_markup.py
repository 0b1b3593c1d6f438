"""HTML from names and texts of others."""

from __future__ import annotations

import pytest

from otel_ml_service.report.markup import (
    Amount,
    Markup,
    cell_table,
    chart_number,
    details,
    joined,
    picture,
    script_data,
    section,
    tag,
    text,
)
from tests.unit.otel_ml_service.report.test_page import Reader


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (9999.4, "9999"), (9999.5, "10,000"), (10000.0, "10,000"), (999_999.0, "999,999"), (1e6, "1e+06"),
        (-12345.6, "-12,346"), (-1e6, "-1e+06"), (0.123456, "0.1235"), (-0.0, "0"), (12345678, "12,345,678"),
        (9_000.0, "9000"),
    ],
)  # fmt: skip
def test_a_number_is_short(value: float, shown: str) -> None:
    assert chart_number(value) == shown


def test_columns_of_numbers_are_aligned_to_the_right() -> None:
    rows = [("a", 1, Amount("2 s"), True, None), ("b", 2.5, None, 3, None)]

    table = cell_table(("name", "n", "took", "is", "none"), rows)

    heads = [has.get("class") for tag, has in Reader(table).elements if tag == "th"]
    assert heads == [None, "number", "number", None, "number"]
    assert table.count('<td class="number">') == 3
    assert "<td></td>" in table
    assert Reader(table).texts == ["name", "n", "took", "is", "none", "a", "1", "2 s", "True", "b", "2.5", "3"]
    assert cell_table(("name",), []) == ""


def test_a_row_may_be_shorter_than_the_table_is_wide() -> None:
    heads = [has.get("class") for tag, has in Reader(cell_table(("a", "b"), [(1,), (2, 3)])).elements if tag == "th"]

    assert heads == ["number", "number"]


def test_texts_are_escaped_and_markup_is_not() -> None:
    assert joined(["<b>", Markup("<b>")]) == "&lt;b&gt;<b>"
    assert tag("td", "a & b", class_="x", data_y='"', z=None) == '<td class="x" data-y="&quot;">a &amp; b</td>'
    assert text("a\tb\nc\u202e") == "a\tb\nc\\u202e"


def test_a_part_without_content_is_left_out() -> None:
    assert section("title", "", "") == details("title", "") == ""
    assert section("title", "", "x") == "<section><h2>title</h2>x</section>"
    assert details("title", "x") == "<details><summary>title</summary>x</details>"


def test_data_of_a_script_is_short_and_its_texts_can_be_shown() -> None:
    assert script_data({"a": [1, None, 0.5], "b": "x"}) == '{"a":[1,null,0.5],"b":"x"}'
    assert script_data({"\x1b": ["\x7f", ("\x00", 1)]}) == '{"\\\\x1b":["\\\\x7f",["\\\\x00",1]]}'


def test_a_picture_is_part_of_the_page() -> None:
    assert picture(b"abc", 3, 4, "<x>") == (
        '<figure><img src="data:image/png;base64,YWJj" width="3" height="4" alt="&lt;x&gt;">'
        "<figcaption>&lt;x&gt;</figcaption></figure>"
    )
