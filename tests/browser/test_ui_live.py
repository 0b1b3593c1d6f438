"""What a person has done to a page stays while the run goes on, and the page goes on whatever happens to it."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser.page import DESKTOP, PHONE, Page
from tests.browser.ui_server import breaking_off, free_port, shown
from tests.unit.otel_ml_service.ui.growing import Growing

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

HOVER = """
const [name, part, ...kinds] = arguments;
const figure = [...document.querySelectorAll('figure.chart')]
    .find(one => one.querySelector('figcaption b').textContent === name);
figure?.closest('details')?.setAttribute('open', '');
figure?.scrollIntoView();
const over = figure?.querySelector('.uplot .u-over');
if (!over) return '';
const place = over.getBoundingClientRect();
const at = {clientX: place.left + place.width * part, clientY: place.top + 20, bubbles: true, button: 0};
for (const kind of ['mouseenter', 'mousemove', ...kinds])
    (kind === 'mouseup' ? document : over).dispatchEvent(new MouseEvent(kind, {...at, movementX: 1}));
return figure.querySelector('.tip:not([hidden])')?.textContent || '';
"""
"""Moves the pointer to a part of a chart's width, does there what is named, and answers what the chart tells."""

KEY = """
const [selector, key, more] = arguments, node = document.querySelector(selector);
node.focus();
const event = new KeyboardEvent('keydown', {key, bubbles: true, cancelable: true, ...more});
node.dispatchEvent(event);
return event.defaultPrevented;
"""
LOSS = "figure[data-chart]"
FOCUS = "return document.activeElement.dataset.look || document.activeElement.textContent"


@pytest.fixture
def run(tmp_path: Path) -> Growing:
    found = Growing(tmp_path)
    for step in range(20):
        found.step(step, loss=1.0 / (step + 1))
        found.spans(step, ranks=3, slow=1)
    return found


@pytest.fixture
def address(run: Growing, tmp_path: Path) -> Iterator[str]:
    with shown(tmp_path) as found:
        yield f"{found}run/growing/run-1/"


def opened(page: Page, address: str, *, size: tuple[int, int] = DESKTOP) -> None:
    page.open(address, size=size)
    page.until(lambda: page.run(HOVER, "loss", 0.0).startswith("step 0\n"), "the curve from its first step on")


def test_a_metric_that_comes_later_takes_nothing_from_the_curves_of_the_others(
    page: Page, address: str, run: Growing
) -> None:
    opened(page, address)

    run.step(20, loss=0.5, accuracy=0.75)
    page.until(lambda: page.run(HOVER, "accuracy", 0.5) == "step 20\n0.75")

    assert page.run(HOVER, "loss", 0.0) == "step 0\n1"
    assert page.run(HOVER, "loss", 1.0) == "step 20\n0.5"


def test_a_reduction_that_comes_later_takes_nothing_from_its_metric(page: Page, address: str, run: Growing) -> None:
    opened(page, address)

    run.step(20, **{"loss": 0.5, "loss/max": 0.75})
    page.until(lambda: page.run(HOVER, "loss", 1.0) == "step 20\nloss  0.5\nmax  0.75")

    assert page.run(HOVER, "loss", 0.0) == "step 0\nloss  1"


def test_how_many_values_are_not_finite_is_told_on_while_values_come(page: Page, address: str, run: Growing) -> None:
    run.step(20, loss=math.nan)
    opened(page, address)
    page.shows("loss\nnan · 1 not finite")

    run.step(21, loss=0.5)
    page.shows("loss\n0.5 · 1 not finite")
    run.step(22, loss=math.inf)
    page.shows("loss\ninf · 2 not finite")


def test_on_paper_there_are_all_curves(page: Page, address: str, run: Growing) -> None:
    run.step(20, **{"loss": 1.0, "a": 1.0, "b": 1.0, **{f"layer/{number:02}": 1.0 for number in range(20)}})
    opened(page, address)
    page.until(lambda: page.run(HOVER, "layer/19", 0.5))
    drawn = "return [...document.querySelectorAll('figure.chart')].map(one => one.querySelectorAll('canvas').length)"
    assert 0 in page.run(drawn)

    page.run("dispatchEvent(new Event('beforeprint'))")
    on_paper = page.run(drawn)
    page.run("dispatchEvent(new Event('afterprint'))")

    assert sum(on_paper) > sum(page.run(drawn))


def test_where_a_person_looks_closer_a_new_step_leaves_it_so(page: Page, address: str, run: Growing) -> None:
    opened(page, address)
    page.run(HOVER, "loss", 0.5, "mousedown")
    page.run(HOVER, "loss", 0.8, "mouseup")
    page.until(lambda: page.run(HOVER, "loss", 0.0).startswith("step 10\n"))

    run.step(20, loss=0.25, accuracy=0.75)  # another metric: the figure, too, is another one
    page.shows("loss\n0.25", "accuracy")
    run.step(21, loss=0.125, accuracy=0.5)
    page.shows("loss\n0.125")

    assert page.run(HOVER, "loss", 0.0).startswith("step 10\n")
    assert page.run(HOVER, "loss", 1.0).startswith("step 15\n")
    page.run(HOVER, "loss", 0.5, "dblclick")
    page.until(lambda: page.run(HOVER, "loss", 1.0).startswith("step 21\n"))


def test_a_point_that_was_reached_with_the_keyboard_is_still_there_after_a_new_step(
    page: Page, address: str, run: Growing
) -> None:
    opened(page, address)
    page.run(HOVER, "loss", 0.5, "mouseleave")
    for _ in range(3):
        page.run(KEY, LOSS, "ArrowRight", {})
    page.shows("step 2\n0.3333")

    run.step(20, loss=0.25)
    page.shows("loss\n0.25")
    page.run(KEY, LOSS, "ArrowRight", {})

    page.shows("step 3\n0.25")


def test_what_a_person_has_pressed_does_not_stop_its_part_of_the_page(page: Page, address: str, run: Growing) -> None:
    """The focus stays on what was pressed, and on what stands there instead when the part has changed."""
    opened(page, address)
    page.run("const box = document.querySelector('[data-look=log]'); box.focus(); box.click();")

    run.step(20, loss=0.5, accuracy=0.75)
    page.shows("accuracy")

    assert page.run("return document.querySelector('[data-look=log]').checked")
    assert page.run(FOCUS) == "log"


def test_a_group_of_curves_that_was_closed_stays_so_and_has_the_focus_when_one_has_come(
    page: Page, address: str, run: Growing
) -> None:
    run.step(20, **{"loss": 0.5, "a/x": 1.0, "a/y": 1.0, "b/x": 1.0, "b/y": 1.0})
    opened(page, address)
    page.shows("a (2)", "b (2)")
    page.run(
        "const one = [...document.querySelectorAll('summary')].find(one => one.textContent === 'a (2)');"
        "one.focus(); one.click()"
    )
    assert page.run("return document.activeElement.textContent") == "a (2)"

    run.step(21, **{"loss": 0.5, "a/x": 1.0, "a/y": 1.0, "a/z": 1.0})
    page.shows("a (3)")

    assert page.run("return document.activeElement.textContent") == "a (3)"
    assert not page.run("return document.activeElement.parentElement.open")


def test_a_click_that_is_not_over_is_not_taken_away(page: Page, address: str, run: Growing) -> None:
    opened(page, address)
    page.press("[data-look=log]")

    run.step(20, loss=0.5, accuracy=0.75)
    page.shows("step 20")
    page.release()

    assert page.run("return document.querySelector('[data-look=log]').checked")
    page.shows("accuracy")


def test_on_a_phone_the_ranks_stay_where_they_were_scrolled_to(page: Page, address: str, run: Growing) -> None:
    opened(page, address, size=PHONE)
    page.run("document.querySelector('.heat .wide').scrollLeft = 150")

    run.step(20, loss=0.5)
    run.spans(20, ranks=3, slow=1)
    page.until(lambda: 20 in page.run("return JSON.parse(document.querySelector('[data-heat]').dataset.heat).steps"))

    assert page.run("return document.querySelector('.heat .wide').scrollLeft") == 150


def test_a_cell_of_the_ranks_stays_chosen_when_a_step_has_come(page: Page, address: str, run: Growing) -> None:
    opened(page, address)
    for key in ("ArrowRight", "ArrowRight", "ArrowDown"):
        page.run(KEY, "svg[data-heat]", key, {})
    page.until(lambda: "rank 1, step 2: " in page.text)

    run.step(20, loss=0.5)
    run.spans(20, ranks=3, slow=1)
    page.until(lambda: 20 in page.run("return JSON.parse(document.querySelector('[data-heat]').dataset.heat).steps"))

    assert "rank 1, step 2: " in page.text
    page.run(KEY, "svg[data-heat]", "Enter", {})
    page.shows("trainer, step 2:")


@pytest.mark.parametrize("selector", [LOSS, "svg[data-heat]", ".step-body"])
@pytest.mark.parametrize(
    ("key", "more"), [("+", {"ctrlKey": True}), ("ArrowLeft", {"altKey": True}), ("0", {"metaKey": True})]
)
def test_keys_of_the_browser_are_left_to_it(
    page: Page, address: str, selector: str, key: str, more: dict[str, bool]
) -> None:
    opened(page, address)
    page.until(lambda: page.count(".step-body rect"))

    assert not page.run(KEY, selector, key, more)


def test_a_page_says_that_its_program_is_gone_and_goes_on_when_it_is_back(
    page: Page, run: Growing, tmp_path: Path
) -> None:
    port = free_port()
    with shown(tmp_path, port) as address:
        opened(page, f"{address}run/growing/run-1/")
        assert "not connected" not in page.text
    page.shows("not connected: the program that shows this page has ended")
    with breaking_off(port) as answered:
        page.until(answered.is_set)

    run.step(20, loss=0.125)
    with shown(tmp_path, port):
        page.shows("loss\n0.125")
        page.until(lambda: "not connected" not in page.text)


def test_a_page_says_that_its_run_was_deleted(page: Page, address: str, run: Growing) -> None:
    opened(page, address)

    shutil.rmtree(run.folder)

    page.shows("this run is no longer in the folder")
    assert "not connected" not in page.text


TAP = """
const [selector] = arguments, node = document.querySelector(selector), place = node.getBoundingClientRect();
const at = {clientX: place.left + place.width * 0.5, clientY: place.top + 20, bubbles: true, pointerType: 'touch'};
for (const kind of ['mouseenter', 'mousemove', 'mousedown', 'mouseup'])
    node.dispatchEvent(new MouseEvent(kind, {...at, movementX: 1}));
node.dispatchEvent(new PointerEvent('click', at));
"""


@pytest.mark.parametrize("selector", [f"{LOSS} .u-over", "svg[data-heat]"])
def test_on_a_phone_the_first_tap_tells_and_the_second_one_opens(page: Page, address: str, selector: str) -> None:
    opened(page, address, size=PHONE)
    page.until(lambda: page.count(".step-body rect"))
    tips = "return [...document.querySelectorAll('.tip:not([hidden])')].map(tip => tip.textContent).join()"
    before = page.run("return document.querySelector('.step input').value")

    page.run(TAP, selector)
    assert "step 10" in page.run(tips) or "step 9" in page.run(tips)
    assert page.run("return document.querySelector('.step input').value") == before
    page.run(TAP, selector)

    page.until(lambda: page.run("return document.querySelector('.step input').value") in {"9", "10"})


LATE_FIRST = """
const before = window.fetch;
let release;
const wait = new Promise(done => { release = done; });
window.fetch = async (address, ...more) => {
    const answer = await before(address, ...more);
    if (address.includes('step=3')) await wait;
    return answer;
};
window.release = () => { window.fetch = before; release(); };
"""
"""The answer about step 3 is held up until `release()`: a slow network."""


TYPE = """
const box = document.querySelector('.step input');
box.value = arguments[0];
box.dispatchEvent(new Event('change'));
"""
TOLD = """
window.told = [];
new MutationObserver(() => window.told.push(document.querySelector('.step > p').textContent))
    .observe(document.querySelector('.step'), {childList: true, subtree: true, characterData: true});
"""
"""Keeps what is said below the step from now on."""


def test_of_two_steps_that_were_asked_for_the_later_question_is_answered(page: Page, address: str) -> None:
    opened(page, address)
    page.until(lambda: page.count(".step-body rect"))
    page.run(LATE_FIRST)
    page.run(TYPE, "3")
    page.run(TYPE, "7")
    page.shows("trainer, step 7:")
    page.run(TOLD)

    page.run("window.release()")
    page.run(TYPE, "9")  # its answer comes after the one that was held up
    page.shows("trainer, step 9:")

    assert not [said for said in page.run("return window.told") if "step 3:" in said]


def test_who_presses_twice_moves_by_two_steps(page: Page, address: str) -> None:
    opened(page, address)
    page.until(lambda: page.count(".step-body rect"))
    page.run(TYPE, "9")
    page.shows("trainer, step 9:")

    page.run(
        "const [button] = document.querySelectorAll('[aria-label=\"the step before\"]'); button.click(); button.click()"
    )

    page.shows("trainer, step 7:")


@pytest.mark.parametrize("text", ["", "1.5", "-3", "x"])
def test_what_is_no_step_is_said_and_nothing_else_is_shown_for_it(page: Page, address: str, text: str) -> None:
    opened(page, address)
    page.until(lambda: page.count(".step-body rect"))

    page.run(TYPE, text)

    page.shows("A step is a whole number from 0 on.")


def test_a_point_of_a_generators_curve_opens_a_step_of_the_generator(page: Page, tmp_path: Path) -> None:
    run = Growing(tmp_path)
    for step in range(3):
        run.step(step, loss=1.0)
        run.step_of("generator", step, {"generator/reward": 1.0})
        for role in ("trainer", "generator"):
            run.spans(step, ranks=2, slow=1, role=role)
    with shown(tmp_path) as address:
        opened(page, f"{address}run/growing/run-1/")
        page.until(lambda: page.run(HOVER, "generator/reward", 0.5, "mousedown", "mouseup", "click"))

        page.shows("generator, step 1:")
