"""The report as a person sees it: light, dark, on a phone."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

from otel_ml.quantities import seconds
from otel_ml_exporters.records import RunStatus, StepRecord
from otel_ml_service.report.contents import contents, read_contents
from otel_ml_service.report.page import page as report
from tests.browser.page import DESKTOP, PHONE, Page
from tests.recorded_run import write_run
from tests.unit.otel_ml_service.report.runs import HOSTILE, records_of_everything

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

WIDER = """
const width = document.documentElement.clientWidth;
const scrolls = node => node && node !== document.body
    && (getComputedStyle(node).overflowX !== 'visible' || scrolls(node.parentElement));
return [...document.querySelectorAll('body *')]
    .filter(node => node.getBoundingClientRect().right > width + 1 && !scrolls(node.parentElement))
    .map(node => node.outerHTML.slice(0, 200));
"""
WORDS = ("loss", "accuracy", "entropy", "reward", "lr", "norm", "kl", "length", "clip", "value")
_HIDDEN = """
return [...document.querySelectorAll('td')].filter(cell => cell.textContent.includes('a'.repeat(300)))
    .flatMap(cell => [...cell.parentElement.cells])
    .filter(cell => cell.getBoundingClientRect().right > document.documentElement.clientWidth)
    .map(cell => cell.textContent.slice(0, 40));
"""
"""Cells beside a word of 300 letters that are outside of the screen, until one scrolls."""

_HOVER = """
const figure = [...document.querySelectorAll('figure.chart')]
    .find(one => one.querySelector('figcaption b').textContent === 'loss');
figure.scrollIntoView();
const over = figure.querySelector('.uplot .u-over');
if (!over) return '';
const place = over.getBoundingClientRect();
for (const kind of ['mouseenter', 'mousemove']) over.dispatchEvent(
    new MouseEvent(kind, {clientX: place.left + place.width / 2, clientY: place.top + 20, bubbles: true}));
return figure.querySelector('.tip:not([hidden])')?.textContent || '';
"""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("report") / "report.html"
    file.write_text(report([contents("run-1", "pages", records_of_everything())]))
    return file.as_uri()


SCROLLED = """
const done = arguments[0], tasks = [0];
new PerformanceObserver(seen => tasks.push(...seen.getEntries().map(one => one.duration)))
    .observe({type: 'longtask', buffered: true});
for (const folded of document.querySelectorAll('details')) folded.open = true;
const charts = [...document.querySelectorAll('figure.chart')];
let at = 0;
const next = () => {
    if (at === charts.length) return done([at, Math.max(...tasks)]);
    charts[at].scrollIntoView();
    if (charts[at].querySelector('.uplot canvas')) at += 1;
    requestAnimationFrame(next);
};
next();
"""
"""Looks at each chart until it is drawn, and answers how many there are, and the longest time nothing moved, ms."""


def test_a_tooltip_tells_a_duration_in_the_same_words_as_the_sentences_of_the_page(page: Page, address: str) -> None:
    values = [0.02512, 1.8, 200.2, 7200, 200_000, 0, 0.99996, -0.0149, 59.97, 3599.7, 5e-7]
    script = (files("otel_ml_service.report") / "assets" / "charts.js").read_text()
    functions = script[script.index("const prefixes") : script.index("const most")]
    page.open(address)

    said = page.run(f"{functions} return arguments[0].map(value => told(value, 's'));", values)

    assert said == [seconds(value) for value in values]


def test_ten_thousand_steps_of_two_hundred_series_stay_smooth(page: Page, tmp_path: Path) -> None:
    names = [f"group_{group}/{word}" for group in range(20) for word in WORDS]
    noise = np.random.default_rng(0).normal(size=(10_000, len(names))).tolist()
    rows = [
        StepRecord(step + 1, "trainer", "step", step, 0, float(step), dict(zip(names, row, strict=True)))
        for step, row in enumerate(noise)
    ]
    run = write_run(tmp_path, "long", [*rows, RunStatus(10_001, 1e4, "finished")])
    file = tmp_path / "report.html"
    file.write_text(report([read_contents(run)]))

    page.open(file.as_uri())
    charts, longest_ms = page.run_until_done(SCROLLED)

    assert charts >= 80
    assert longest_ms < 1_000, "a page that draws each of 2,000,000 values stands still for seconds"
    assert file.stat().st_size < 4_000_000
    assert page.errors == []


@pytest.mark.feature("I20", "yes", "several runs side by side, opened in a browser")
def test_several_runs_side_by_side(page: Page, tmp_path: Path) -> None:
    runs = [contents(f"run-{n}", "pages", records_of_everything(ranks=n, step_s=2 / n)) for n in (2, 4, 8)]
    (tmp_path / "report.html").write_text(report(runs))

    page.open((tmp_path / "report.html").as_uri())

    page.shows("3 runs", "Side by side", "efficiency", "run-8")
    page.picture("report-several-runs")
    assert page.errors == []


@pytest.mark.parametrize(("name", "size"), [("desktop", DESKTOP), ("phone", PHONE)])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.feature("N18", "yes", "what every worker did in the last steps, a row a worker")
def test_a_report_is_readable_on_every_screen(
    page: Page, address: str, name: str, size: tuple[int, int], scheme: str
) -> None:
    page.open(address, size=size, scheme=scheme)

    page.shows("run-1", "Slow and silent ranks", "Where the time goes", "What every worker did", "samples", HOSTILE)
    assert page.run(WIDER) == []
    assert page.run(_HIDDEN) == []
    assert page.count("svg path.c0") >= 4
    assert page.title == "run-1"
    assert page.errors == []
    for part in range(3):
        page.run(f"window.scrollTo(0, {part} * innerHeight)")
        page.picture(f"report-{name}-{scheme}-{part}")


def test_the_pointer_tells_the_values_under_it(page: Page, address: str) -> None:
    page.open(address)

    said = page.until(lambda: page.run(_HOVER))

    assert said.splitlines() == ["step 29", "loss  0.06667", "max  0.1"]
