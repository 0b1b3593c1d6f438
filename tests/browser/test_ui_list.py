"""The list of runs while a person uses it, and runs come, change and go."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.browser.page import Page
from tests.browser.ui_server import breaking_off, free_port, shown
from tests.unit.otel_ml_service.ui.growing import Growing

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]


def test_the_list_goes_on_when_its_program_is_back(page: Page, tmp_path: Path) -> None:
    Growing(tmp_path).step(0, loss=1.0)
    port = free_port()
    with shown(tmp_path, port) as address:
        page.open(address)
        page.shows("1 of 1 runs")
    page.shows("not connected: the program that shows this page has ended")
    with breaking_off(port) as answered:
        page.until(answered.is_set)

    Growing(tmp_path, run="run-2").step(0, loss=1.0)
    with shown(tmp_path, port):
        page.shows("2 of 2 runs")
        page.until(lambda: "not connected" not in page.text)


def test_in_the_list_the_focus_stays_on_a_run_while_others_change(page: Page, tmp_path: Path) -> None:
    run = Growing(tmp_path)
    run.step(19, loss=1.0)
    with shown(tmp_path) as address:
        page.open(address)
        page.shows("1 of 1 runs", "19")
        page.run("document.querySelector('td.who a').focus()")
        page.run("document.querySelector('td.who a').mark = 'as it was'")
        Growing(tmp_path, run="run-2").step(0, loss=1.0)
        page.shows("2 of 2 runs", "run-2")
        assert page.run("return document.activeElement.mark") == "as it was"
        run.step(77, loss=0.5)
        page.shows("77")

        assert page.run("return document.activeElement.href").endswith("/run/growing/run-1/")


def test_runs_that_are_gone_or_too_many_are_not_compared(page: Page, tmp_path: Path) -> None:
    runs = [Growing(tmp_path, run=f"run-{number}") for number in range(9)]
    for one in runs:
        one.step(0, loss=1.0)
    button = "const {disabled, textContent} = document.getElementById('compare'); return [disabled, textContent]"
    with shown(tmp_path) as address:
        page.open(address)
        page.shows("9 of 9 runs")
        page.run("document.querySelectorAll('#runs input').forEach(box => box.click())")
        page.shows("at most 8 are compared")
        assert page.run(button) == [True, "Compare 9"]

        shutil.rmtree(runs[0].folder)
        page.shows("8 of 8 runs")

        assert page.run(button) == [False, "Compare 8"]
