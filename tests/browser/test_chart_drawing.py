"""What charts draw and tell of values that are odd: close together, huge, of no logarithm, alone, of many curves."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path

import pytest

from otel_ml.quantities import quantity
from otel_ml_exporters.records import StepRecord
from otel_ml_service.report.contents import contents
from otel_ml_service.report.page import page as report
from tests.browser.page import Page
from tests.browser.test_ui_live import HOVER

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

WATCHED = """
window.texts = []; window.looks = [];
const of = CanvasRenderingContext2D.prototype, {fillText, stroke} = of;
of.fillText = function (text, ...more) { window.texts.push(text); return fillText.call(this, text, ...more); };
of.stroke = function (...more) {
    window.looks.push([this.strokeStyle, this.getLineDash().length > 0]);
    return stroke.call(this, ...more);
};
"""
"""Keeps what charts write at their axes, and the color of each line and whether it is dashed."""

REDRAWN = """
const done = arguments[0];
window.texts = []; window.looks = [];
for (const box of document.querySelectorAll('[data-look=log]')) box.dispatchEvent(new Event('input', {bubbles: true}));
requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(() => done([window.texts, window.looks]))));
"""

INK = """
const [name] = arguments, figure = [...document.querySelectorAll('figure.chart')]
    .find(one => one.querySelector('figcaption b').textContent === name);
figure.scrollIntoView();
const canvas = figure.querySelector('.uplot canvas');
if (!canvas) return null;
const probe = document.createElement('canvas').getContext('2d');
probe.fillStyle = getComputedStyle(document.documentElement).getPropertyValue('--c0');
probe.fillRect(0, 0, 1, 1);
const [red, green, blue] = probe.getImageData(0, 0, 1, 1).data;
const {data} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
let found = 0;
for (let at = 0; at < data.length; at += 4)
    found += data[at] === red && data[at + 1] === green && data[at + 2] === blue && data[at + 3] === 255;
return found;
"""
"""How many pixels of a chart have the color of its first curve."""

NOTE = """
return [...document.querySelectorAll('figure.chart')]
    .find(one => one.querySelector('figcaption b').textContent === arguments[0]).querySelector('.note').textContent;
"""


def opened(page: Page, folder: Path, series: Mapping[str, Sequence[float]], first: int = 0) -> None:
    """Open the report of a run with these values at its steps; NaN is no value."""
    steps = max(map(len, series.values()))
    rows = [
        StepRecord(
            step + 1, "trainer", "step", first + step, 0, 1000.0 + step,
            {name: values[step] for name, values in series.items() if step < len(values)},
        )
        for step in range(steps)
    ]  # fmt: skip
    file = folder / "report.html"
    file.write_text(report([contents("run", "charts", rows)]))
    page.open(file.as_uri())
    page.until(lambda: page.run(HOVER, next(iter(series)), 0.0))


def at_the_axes(page: Page) -> list[str]:
    page.run(WATCHED)
    texts, _ = page.run_until_done(REDRAWN)
    return [str(text) for text in texts if text]


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("loss", [2.30001, 2.30002, 2.30003]),
        ("tokens_seen", [1_700_000_000.0, 1_700_000_004.0, 1_700_000_008.0]),
        ("time/forward", [1.00001, 1.00002, 1.00003]),
    ],
)
def test_values_that_are_close_together_are_told_apart_at_the_axis(
    page: Page, tmp_path: Path, name: str, values: list[float]
) -> None:
    opened(page, tmp_path, {name: values}, first=0)

    said = [text for text in at_the_axes(page) if len(re.sub(r"\D", "", text)) >= 6]

    assert len(set(said)) == len(said) >= 2


@pytest.mark.parametrize("first", [1_200_000, 2**31, 2**40])
def test_large_steps_are_told_as_they_are(page: Page, tmp_path: Path, first: int) -> None:
    opened(page, tmp_path, {"loss": [1.0 + step for step in range(401)]}, first)

    steps = {f"{first + step:,}" for step in range(401)}
    assert len([text for text in at_the_axes(page) if text in steps]) >= 2
    assert page.run(HOVER, "loss", 1.0) == f"step {first + 400:,}\n401"


def test_a_timer_whose_first_steps_are_cut_off_is_drawn_on_a_logarithmic_axis(page: Page, tmp_path: Path) -> None:
    opened(page, tmp_path, {"time/step": [60.0, 50.0, 40.0, *[0.01, 0.0, 0.012] * 20]})
    assert page.run(NOTE, "time/step") == "first steps up to 1 min are cut off"

    page.run("document.querySelector('[data-look=log]').click()")
    page.until(lambda: "what is not above 0 is not drawn" in page.run(NOTE, "time/step"))

    assert page.until(lambda: page.run(INK, "time/step")) > 30
    assert len([text for text in at_the_axes(page) if text.endswith("s")]) >= 2
    assert page.errors == []


def test_the_tip_tells_what_was_recorded_and_not_what_is_drawn(page: Page, tmp_path: Path) -> None:
    opened(page, tmp_path, {"loss": [1e308, -3.0, math.nan, 4.0, 5.0]})
    page.run("document.querySelector('[data-look=log]').click()")
    page.until(lambda: "beyond ±1e+30 it is cut off" in page.run(NOTE, "loss"))

    assert page.run(HOVER, "loss", 0.0) == "step 0\n1e+308"
    assert page.run(HOVER, "loss", 0.25) == "step 1\n-3"
    assert page.run(HOVER, "loss", 0.5) == "step 2\nnot finite"


def test_values_between_gaps_are_seen_however_many_there_are(page: Page, tmp_path: Path) -> None:
    opened(page, tmp_path, {"loss": [1.0 if step % 2 else math.nan for step in range(300)]})

    assert page.until(lambda: page.run(INK, "loss")) > 100


STRAIGHT = [1.0 * step for step in range(300)]
"""So many values that points are not marked: a mark is never dashed."""


def test_curves_look_as_the_legend_says_also_beyond_twelve(page: Page, tmp_path: Path) -> None:
    names = [f"p{number}" for number in range(10, 23)]
    opened(page, tmp_path, {"length": STRAIGHT, **{f"length/{name}": STRAIGHT for name in names}})
    legend = page.run(
        "const [figure] = document.querySelectorAll('figure.chart');"
        "const style = getComputedStyle(document.documentElement);"
        "return [...figure.querySelectorAll('.key')].map(key => [style.getPropertyValue('--' + /c\\d/.exec("
        "key.className)[0]).trim(), key.classList.contains('dashed')]);"
    )
    page.run(WATCHED)
    _, looks = page.run_until_done(REDRAWN)

    colors = {color for color, _ in legend}
    lines = [[color, dashed] for color, dashed in looks if color in colors]
    assert len(legend) == 14
    assert [look for place, look in enumerate(lines) if place == 0 or look != lines[place - 1]] == legend


def test_a_quantity_has_the_same_unit_in_charts_and_in_sentences(page: Page, tmp_path: Path) -> None:
    values = [0.0, 1.0, 999.4, 12_300.0, 4.56e6, 7.89e9, 1.2e12, 3.4e15]
    script = (files("otel_ml_service.report") / "assets" / "charts.js").read_text()
    functions = script[script.index("const prefixes") : script.index("const most")]
    page.open("about:blank")

    for unit in ("B", "J", "W"):
        shown = page.run(f"{functions} return arguments[0].map(value => quantity(value, '{unit}', 3));", values)
        wanted = [quantity(value, unit) for value in values]
        assert [re.sub(r"^[\d.,e+]+", "", one) for one in shown] == [re.sub(r"^[\d.,e+]+", "", one) for one in wanted]
