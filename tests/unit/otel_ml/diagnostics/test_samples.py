"""Samples in the run's table and on the console."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import otel_ml
from otel_ml.diagnostics import samples
from otel_ml.diagnostics.samples import log_samples
from otel_ml.testing import Capture, capture


@pytest.fixture
def captured(monkeypatch: pytest.MonkeyPatch) -> Iterator[Capture]:
    monkeypatch.setattr(samples, "_tables", {})
    with capture() as run:
        yield run


def tables(captured: Capture) -> list[list[list[object]]]:
    return [event.body["rows"] for event in captured.events if event.kind == "ml.table"]


@pytest.mark.feature("R16", "yes", "one table that grows from step to step in every backend")
@pytest.mark.feature("N20", "yes", "worst, median and best on the console, with a histogram of the rewards")
def test_samples_are_one_table_that_grows_and_a_panel(captured: Capture, capsys: pytest.CaptureFixture[str]) -> None:
    for step in range(2):
        otel_ml.set_step(step)
        log_samples(["1+1?", "2+2?"], ["2", f"{step}"], [1.0, np.float32(0.5)])

    assert tables(captured)[-1] == [
        [0, "1+1?", "2", 1.0],
        [0, "2+2?", "0", 0.5],
        [1, "1+1?", "2", 1.0],
        [1, "2+2?", "1", 0.5],
    ]
    panel = capsys.readouterr().err
    assert "samples, step 1" in panel
    assert "2+2?   reward 0.5" in panel
    assert "2 samples, rewards 0.5 █" in panel


def test_the_panel_shows_the_worst_the_median_and_the_best(
    captured: Capture, capsys: pytest.CaptureFixture[str]
) -> None:
    rewards = [float(number) for number in range(101)]

    log_samples([f"prompt {number}" for number in range(101)], ["x"] * 101, rewards, print=3, step=0)

    panel = capsys.readouterr().err
    assert [number for number in range(101) if f"prompt {number} " in panel] == [0, 50, 100]


def test_nothing_is_printed_where_that_is_asked_for(captured: Capture, capsys: pytest.CaptureFixture[str]) -> None:
    log_samples(["a"], ["b"], print=0, step=0)

    assert tables(captured) == [[[0, "a", "b", None]]]
    assert capsys.readouterr().err == ""


def test_what_a_model_wrote_does_nothing_to_the_terminal(captured: Capture, capsys: pytest.CaptureFixture[str]) -> None:
    log_samples(["[bold]x[/nothing]"], ["a\x1b[2Jb\nnext"], [0.0], step=0)

    panel = capsys.readouterr().err
    assert "\x1b[2J" not in panel
    assert "[bold]x[/nothing]" in panel
    assert "next" in panel


def test_the_table_keeps_the_newest_thousand(captured: Capture) -> None:
    for step in range(3):
        log_samples([f"{step}"] * 400, ["x"] * 400, print=0, step=step)

    last = tables(captured)[-1]
    assert len(last) == 1000
    assert (last[0][0], last[-1][0]) == (0, 2)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((["a"], ["b", "c"]), "1 prompts, 2 responses and no rewards were given. Expected equally many."),
        ((["a"], ["b"], []), "1 prompts, 1 responses and 0 rewards were given. Expected equally many."),
        ((["a"], ["b"], ["good"]), "a reward is no number"),
    ],
)
def test_samples_that_do_not_fit_together_are_counted_and_said(
    captured: Capture, arguments: tuple[list[str], ...], said: str
) -> None:
    log_samples(*arguments, step=0)

    assert said in captured.notices[0]
    assert tables(captured) == []


def test_without_a_run_nothing_happens(capsys: pytest.CaptureFixture[str]) -> None:
    log_samples(["a"], ["b"], [1.0], step=0)

    assert capsys.readouterr().err == ""
