"""`otel-ml ui` as a person sees and uses it: the list, a run while it trains, a finished one, without a mouse."""

from __future__ import annotations

import signal
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.browser.page import DESKTOP, PHONE, Page
from tests.browser.test_report_page import WIDER
from tests.e2e.jobs import all_finished, environment, processes
from tests.recorded_run import write_run
from tests.unit.otel_ml_service.report.job_of_roles import job_of_two_roles
from tests.unit.otel_ml_service.report.runs import HOSTILE, records_of_everything

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

TABLET = (820, 1100)
KEYS = """
const [selector, key] = arguments, node = document.querySelector(selector);
node.focus();
node.dispatchEvent(new KeyboardEvent('keydown', {key, bubbles: true}));
return document.activeElement === node;
"""
CHART = """
const figure = [...document.querySelectorAll('figure.chart')]
    .find(one => one.querySelector('figcaption b').textContent === arguments[0]);
figure.scrollIntoView();
return figure.querySelector('.uplot canvas') !== null && figure.querySelector('figcaption span').textContent;
"""


BETWEEN_LOOKS = """
const looks = performance.getEntriesByType('resource').filter(one => one.name.includes('/news?'));
return looks.length > 5 && looks.slice(1).map((look, number) => look.startTime - looks[number].startTime);
"""
"""Milliseconds between a page's questions for what is new."""


@contextmanager
def served(base: Path) -> Iterator[str]:
    """Run `otel-ml ui` and yield the address that it says."""
    command = [sys.executable, "-m", "otel_ml_service", "ui", "--no-browser", "--dir", str(base)]
    with subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.send_signal(signal.SIGINT)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    base = tmp_path_factory.mktemp("ui")
    write_run(base, "run-1", records_of_everything())
    write_run(base, "run-2", records_of_everything(ranks=8), experiment="other")
    with served(base) as found:
        yield found


@pytest.mark.parametrize(("name", "size"), [("desktop", DESKTOP), ("tablet", TABLET), ("phone", PHONE)])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_list_and_run_are_readable_on_every_screen(
    page: Page, address: str, name: str, size: tuple[int, int], scheme: str
) -> None:
    page.open(address, size=size, scheme=scheme)
    page.shows("run-1", "run-2", "finished", "2 of 2 runs")
    assert page.run(WIDER) == []
    page.picture(f"ui-list-{name}-{scheme}")

    page.open(f"{address}run/digits/run-1/", size=size, scheme=scheme)
    page.shows(
        "Rank 3 was slow in forward, steps 20–39", "+500 ms a step", "see step 21", "Slow and silent ranks", HOSTILE
    )
    page.until(lambda: page.run(CHART, "loss"))
    assert page.run(WIDER) == []
    assert page.title == "run-1"
    assert page.errors == []
    page.picture(f"ui-run-{name}-{scheme}")


def test_a_name_of_300_letters_in_the_list_leaves_the_other_columns_in_sight(page: Page, address: str) -> None:
    page.open(address)
    page.shows("2 of 2 runs", "a" * 300)

    right = "return document.querySelector('th:last-child').getBoundingClientRect().right <= innerWidth"
    assert page.run(right)


def test_words_filter_the_list_and_chosen_runs_are_compared(page: Page, address: str) -> None:
    page.open(address)
    page.shows("2 of 2 runs")

    page.type("#filter", "other 0.97")
    page.shows("1 of 2 runs")
    assert "run-1" not in page.text
    page.run("const box = document.getElementById('filter'); box.value = ''; box.dispatchEvent(new Event('input'));")
    page.shows("2 of 2 runs")
    for box in range(2):
        page.run(f"document.querySelectorAll('#runs input')[{box}].click()")
    page.run("document.getElementById('compare').click()")

    page.shows("2 runs", "Side by side", "run-1", "run-2")
    assert page.errors == []


TIP = """
const figure = [...document.querySelectorAll('figure.chart')]
    .find(one => one.querySelector('figcaption b').textContent === arguments[0]);
figure.closest('details')?.setAttribute('open', '');
figure.scrollIntoView();
if (!figure.querySelector('.uplot canvas')) return null;
figure.focus();
figure.dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowRight', bubbles: true}));
return figure.querySelector('.tip').textContent.split('\\n')[0];
"""
GENERATED = "generator/rollout/time/generate"


def test_roles_meet_on_one_axis_of_time(page: Page, tmp_path: Path) -> None:
    write_run(tmp_path, "roles", job_of_two_roles())
    with served(tmp_path) as address:
        page.open(f"{address}run/digits/roles/")
        page.shows("Rank 1 of generator was slow in generate, rollouts 60–69", "(beside step 31)", "reward by version")
        beside = page.until(lambda: page.run(TIP, GENERATED))
        page.run("document.querySelector('[data-look=time]').click()")
        page.until(lambda: page.run(TIP, GENERATED) == "rollout 1 (beside step 1)")

        assert beside == "rollout 0 (beside step 1)"
        assert page.run(WIDER) == []
        page.picture("ui-roles-on-one-axis-of-time")
    assert page.errors == []


def test_the_heat_map_and_the_step_are_reached_and_read_without_a_mouse(page: Page, address: str) -> None:
    page.open(f"{address}run/digits/run-1/")
    page.shows("What every rank did in a step")
    page.until(lambda: page.count(".step-body rect"))

    assert page.run(KEYS, "svg[data-heat]", "ArrowRight")
    page.shows("rank 0, step 55: as the others")
    page.run(KEYS, "svg[data-heat]", "Enter")
    page.shows("trainer, step 55: 990 ms")
    boxes = page.count(".step-body rect")
    page.run(KEYS, ".step-body", "+")
    page.until(lambda: "247.5 ms" in page.text)
    page.run(KEYS, ".step-body", "PageDown")

    page.shows("trainer, step 56: 990 ms")
    assert boxes == page.count(".step-body rect") >= 4 * 5
    assert page.count(".step-body rect.front") >= 1


def test_a_run_is_followed_while_it_trains_to_its_end(page: Page, tmp_path: Path) -> None:
    settings = {"OTEL_ML_EXPERIMENT_ID": "live-1", "OTEL_ML_EXPORTERS": "jsonl", "OTEL_ML_DIR": tmp_path / "runs"}
    command = [sys.executable, "-m", "tests.browser.live_job", tmp_path]
    ranks = [(command, environment(RANK=rank, LOCAL_RANK=rank, WORLD_SIZE=2, **settings)) for rank in range(2)]
    steps = tmp_path / "steps"
    steps.write_text("step\n" * 3)  # a step is complete when a later one has begun

    def more(lines: str) -> None:
        with steps.open("a") as file:
            file.write(lines)

    with processes(ranks, tmp_path) as started, served(tmp_path / "runs") as address:
        page.open(address)
        page.shows("followed", "live")
        page.open(f"{address}run/pages/live-1/")
        page.shows("live · step 1")
        page.until(lambda: page.run(CHART, "loss") == "0.5")
        more("step\nstep\n")
        page.until(lambda: page.run(CHART, "loss") == "0.25", "the loss of step 3")
        page.shows("live · step 3")
        often = page.until(lambda: page.run(BETWEEN_LOOKS), "five looks")
        assert statistics.median(often) <= 2_000, "a run that trains is shown anew every 2 s at least"
        more("end\n")
        all_finished(started)
        page.shows("finished · step 4")

    page.shows("not connected")
