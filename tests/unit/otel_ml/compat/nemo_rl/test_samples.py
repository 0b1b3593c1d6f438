"""What `print_message_log_samples()` shows."""

from __future__ import annotations

import io
import math
from typing import Any

import pytest
import torch
from rich.console import Console

from otel_ml.compat.nemo_rl import print_message_log_samples
from otel_ml.compat.nemo_rl.samples import chosen_samples, reward_levels
from otel_ml.testing import Capture


def conversation(prompt: str, response: str) -> list[dict[str, str]]:
    return [{"role": "system", "content": "Be brief."}, {"role": "user", "content": prompt},
            {"role": "assistant", "content": response}]  # fmt: skip


def shown(logs: list[Any], rewards: Any, count: int = 5, step: int = 0) -> str:
    console = Console(file=io.StringIO(), width=100, color_system=None)
    print_message_log_samples(logs, rewards, count, step, console=console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.feature("N20", "yes", "half the best, half the worst, and the median")
def test_the_best_the_worst_and_the_median_are_chosen() -> None:
    rewards = [0.1, 0.9, 0.5, 0.0, 0.7, 0.6, 0.2]

    assert chosen_samples(rewards, 5) == [1, 4, 0, 3, 2]
    assert chosen_samples(rewards, 4) == [1, 4, 0, 3]
    assert chosen_samples(rewards, 7) == [0, 1, 2, 3, 4, 5, 6]


def test_a_single_sample_is_the_median() -> None:
    assert chosen_samples([0.1, 0.9, 0.5], 1) == [2]


def test_a_reward_that_is_no_number_counts_as_the_worst() -> None:
    assert chosen_samples([math.nan, 0.5, 0.9], 2) == [2, 0]


@pytest.mark.feature("N20", "better", "prompts and responses stand side by side, and stay in the run as a table")
def test_prompt_and_response_stand_side_by_side_with_their_reward(otel_ml_capture: Capture) -> None:
    text = shown([conversation("What is 2+2?", "4"), conversation("And 3+3?", "7")], [1.0, -1.0], step=12)

    assert "Step 12" in text
    assert "Sample 1 | Reward: 1.0000" in text
    assert "Sample 2 | Reward: -1.0000" in text
    [row] = [line for line in text.splitlines() if "SYSTEM: Be brief." in line and "ASSISTANT: 4" in line]
    assert row.index("SYSTEM") < row.index("ASSISTANT")
    [table] = [event for event in otel_ml_capture.events if event.kind == "ml.table"]
    assert (table.name, table.step) == ("message_log_samples", 12)
    assert table.body["columns"] == ["reward", "prompt", "response"]
    assert table.body["rows"][1] == [-1.0, "system: Be brief.\n\nuser: And 3+3?", "assistant: 7"]


@pytest.mark.feature("N20", "yes", "a bar for each distinct reward")
def test_every_distinct_reward_has_a_bar_as_long_as_its_count() -> None:
    text = shown([conversation("p", "r")] * 4, [1.0, 0.0, 1.0, 1.0])

    bars = {line.split()[2]: (line.count("█"), line.split()[4]) for line in text.splitlines() if "█" in line}
    assert bars == {"1.0000": (20, "3"), "0.0000": (7, "1")}
    assert "samples 4  mean 0.7500  min 0.0000  max 1.0000" in text


@pytest.mark.feature("N20", "better", "many different rewards are counted in ten ranges")
def test_many_different_rewards_are_counted_in_ranges() -> None:
    levels = reward_levels([index / 1000 for index in range(1000)] + [math.nan])

    assert [count for _, _, count in levels] == [100] * 10 + [1]
    assert levels[0][0] == "0.0000 … 0.0999"
    assert levels[-1][0] == "nan"


@pytest.mark.feature("N20", "better", "any text is shown as it is, whatever brackets it has")
@pytest.mark.parametrize("text", ["[/bold] [red]x[/red]", "[/", "a[0] and [link=x]", "\\[b]", "[bold on red]"])
def test_a_response_is_shown_as_it_is(text: str) -> None:
    assert f"ASSISTANT: {text}" in shown([conversation("p", text)], [0.0])


@pytest.mark.parametrize(
    ("logs", "rewards", "count"),
    [([], [], 5), ([conversation("p", "r")], [], 5), ([conversation("p", "r")], [1.0], 0)],
    ids=["no logs", "no rewards", "none wanted"],
)
def test_nothing_is_printed_where_there_is_nothing_to_show(logs: list[Any], rewards: list[float], count: int) -> None:
    assert shown(logs, rewards, count) == ""


def test_odd_messages_and_tensors_do_not_stop_the_others() -> None:
    odd = [{"role": "user"}, "text", {"role": "tool", "content": ["part", 1]}]

    text = shown([odd, [], conversation("p", "r")], torch.tensor([0.5, math.nan, 1.0]))

    assert "TOOL: ['part', 1]" in text
    assert "(no message)" in text
    assert "Reward: nan" in text
    assert "ASSISTANT: r" in text


def test_more_samples_than_rewards_show_those_that_have_one() -> None:
    text = shown([conversation("first", "r"), conversation("second", "r")], [1.0])

    assert "first" in text
    assert "second" not in text
