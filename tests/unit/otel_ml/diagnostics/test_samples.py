"""Samples in the run's table and on the console."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import otel_ml
from otel_ml.diagnostics import samples
from otel_ml.diagnostics.samples import Sample, chosen, log_samples, show
from otel_ml.testing import Capture, capture
from tests.e2e.jobs import environment, finished


@pytest.fixture
def captured(monkeypatch: pytest.MonkeyPatch) -> Iterator[Capture]:
    monkeypatch.setattr(samples, "_tables", {})  # tables grow for as long as the process
    with capture() as run:
        yield run


def tables(captured: Capture) -> list[list[list[object]]]:
    return [event.body["rows"] for event in captured.events if event.kind == "ml.table"]


@pytest.mark.feature("R16", "yes", "one table that grows from step to step in every backend")
def test_samples_are_one_table_that_grows(captured: Capture) -> None:
    for step in range(2):
        otel_ml.set_step(step)
        log_samples(["1+1?", "2+2?"], ["2", f"{step}"], [1.0, np.float32(0.5)])

    first, second = [[0, "1+1?", "2", 1.0], [0, "2+2?", "0", 0.5]], [[1, "1+1?", "2", 1.0], [1, "2+2?", "1", 0.5]]
    assert tables(captured)[-1] == first + second


@pytest.mark.parametrize(
    "rewards",
    [
        torch.tensor([0.0, 0.5]),
        torch.tensor([[0.0], [0.5]], dtype=torch.bfloat16, requires_grad=True),
        [torch.tensor(0.0), torch.tensor([0.5])],
        np.array([0.0, 0.5], dtype=np.float16),
        (reward for reward in (0, 0.5)),
    ],
    ids=["tensor", "column", "tensors", "array", "iterator"],
)
def test_rewards_are_whatever_holds_a_number_for_each_sample(captured: Capture, rewards: Any) -> None:
    log_samples(np.array(["a", "b"]), ("c", "d"), rewards, step=0)

    assert tables(captured) == [[[0, "a", "c", 0.0], [0, "b", "d", 0.5]]]
    assert captured.notices == []


def test_one_reward_of_zero_is_a_reward(captured: Capture) -> None:
    log_samples(["a"], ["b"], np.zeros(1), step=0)

    assert tables(captured) == [[[0, "a", "b", 0.0]]]


@pytest.mark.parametrize("rewards", [5, [torch.tensor([1.0, 2.0])]])
def test_what_holds_no_rewards_is_said_and_not_raised(captured: Capture, rewards: Any) -> None:
    log_samples(["a"], ["b"], rewards, step=0)

    assert tables(captured) == []
    assert "log_samples()" in captured.notices[0]


def test_a_reward_that_is_no_number_is_neither_the_worst_nor_the_best() -> None:
    nan = float("nan")
    samples_ = [Sample("", str(place), reward) for place, reward in enumerate([3.0, nan, 9.0, 1.0, nan, 5.0])]

    assert [sample.reward for sample in chosen(samples_, 3)] == [1.0, 5.0, 9.0]
    assert [sample.response for sample in chosen(samples_, 10)] == ["3", "0", "5", "2", "1", "4"]
    assert [sample.response for sample in chosen(samples_, 5)] == ["3", "0", "5", "2", "1"]


@pytest.mark.feature("N20", "yes", "worst, median and best on the console, with a histogram of the rewards")
def test_the_panel_shows_worst_median_and_best_and_all_rewards(capsys: pytest.CaptureFixture[str]) -> None:
    show([Sample(f"prompt {number}", "x", float(number)) for number in range(101)], 3, title="samples, step 7")

    panel = capsys.readouterr().err
    assert [number for number in range(101) if f"prompt {number} " in panel] == [0, 50, 100]
    assert "samples, step 7" in panel
    assert "101 samples, rewards 0 █" in panel


def test_rewards_of_any_size_have_a_histogram() -> None:
    assert samples.histogram([-1e308, 0.0, 1e308, 1e308], bins=4) == "-1e+308 ▅▁▅█ 1e+308"


def test_nothing_is_printed_where_the_console_is_off(captured: Capture, capsys: pytest.CaptureFixture[str]) -> None:
    log_samples(["a"], ["b"], step=0)  # a capture has no console

    assert tables(captured) == [[[0, "a", "b", None]]]
    assert capsys.readouterr().err == ""


def test_a_run_prints_the_panel_on_rank_0_as_often_as_it_is_asked_to(tmp_path: Path) -> None:
    program = (
        "import otel_ml\nfrom otel_ml.diagnostics.samples import log_samples\n"
        "with otel_ml.init('samples', exporters='jsonl'):\n"
        "    log_samples(['first'], ['b'], [1.0], step=0)\n    log_samples(['second'], ['b'], [1.0], print=0, step=1)\n"
    )

    said = finished([sys.executable, "-c", program], environment(), tmp_path)

    assert "first   reward 1" in said
    assert "second" not in said


def test_what_a_model_wrote_does_nothing_to_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    show([Sample("[bold]x[/nothing]", "a\x1b[2Jb\nnext", float("nan"))], 1, title="[red]")

    panel = capsys.readouterr().err
    assert "\x1b[2J" not in panel
    assert "[bold]x[/nothing]" in panel
    assert "[red]" in panel
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
        ((["a"], ["b"], ["good"]), "a reward is not a number"),
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
