"""Samples of a batch on the console: the best, the worst and the median, with the distribution of rewards."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import otel_ml
from otel_ml.compat.tracking.run_of_the_job import has_run

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text

__all__ = ["chosen_samples", "print_message_log_samples", "reward_levels"]

_MOST_LEVELS = 20
"""Distinct rewards with a bar of their own; more are counted in ten ranges."""

_BAR = 20

_ROLE_STYLES = {"system": "bright_magenta", "user": "bright_blue", "assistant": "bright_green"}

_ANSWERS = frozenset({"assistant"})

_LEVELS = ((0.7, "🔥", "bright_green"), (0.3, "✨", "green"), (-0.5, "🟠", "yellow"))

_WORST = ("🔴", "red")


def print_message_log_samples(
    message_logs: Sequence[Sequence[Mapping[str, Any]]],
    rewards: Iterable[Any],
    num_samples: int = 5,
    step: int = 0,
    *,
    console: Console | None = None,
) -> None:
    """Print samples with their rewards, prompt and response side by side, and keep them as a table of the run.

    Args:
        message_logs: a conversation each, of messages with `role` and `content`.
        rewards: one for each conversation; numbers or 0-d tensors.
        num_samples: the most that are shown: half of them the best, half the worst; one more is the median.
        step: named in the heading, and the table's step.
        console: where to print instead of stdout.
    """
    pairs = [(log, float(reward)) for log, reward in zip(message_logs, rewards, strict=False)]
    if num_samples <= 0 or not pairs:
        return
    shown = [pairs[index] for index in chosen_samples([reward for _, reward in pairs], num_samples)]
    # rich ends the program by SystemExit(1) where whoever read stdout has gone; a closed one is a ValueError.
    with suppress(OSError, ValueError, SystemExit):
        _print(console, shown, [reward for _, reward in pairs], step)
    if has_run():
        rows = [[reward, _text(log, answers=False), _text(log, answers=True)] for log, reward in shown]
        otel_ml.log_table("message_log_samples", rows, ["reward", "prompt", "response"], step=step)


def chosen_samples(rewards: Sequence[float], count: int) -> list[int]:
    """Return which samples to show: all in their order, or the best, the worst and, of an odd count, the median.

    Examples:
        >>> chosen_samples([0.1, 0.9, 0.5, 0.0, 0.7], 3)
        [1, 3, 2]
        >>> chosen_samples([0.1, 0.9, 0.5], 1)
        [2]
    """
    if len(rewards) <= count:
        return list(range(len(rewards)))
    # A reward that is not a number comes last: it is what one would look for.
    order = sorted(range(len(rewards)), key=lambda index: _sortable(rewards[index]), reverse=True)
    half = count // 2
    middle = [order[len(order) // 2]] if count % 2 else []
    return order[:half] + order[len(order) - half :] + middle


def _sortable(reward: float) -> float:
    return -math.inf if math.isnan(reward) else reward


def reward_levels(rewards: Sequence[float]) -> list[tuple[str, float, int]]:
    """Return (label, reward, how many samples have it), ascending; ranges where there are many rewards.

    Examples:
        >>> reward_levels([1.0, 0.0, 1.0])
        [('0.0000', 0.0, 1), ('1.0000', 1.0, 2)]
    """
    finite = [reward for reward in rewards if math.isfinite(reward)]
    counts = Counter(finite)
    odd = Counter(str(reward) for reward in rewards if not math.isfinite(reward))
    others = [(label, float(label), count) for label, count in odd.items()]
    if len(counts) <= _MOST_LEVELS:
        return [(f"{reward:.4f}", reward, counts[reward]) for reward in sorted(counts)] + others
    # More than _MOST_LEVELS different ones, so `high` is above `low`.
    low, high = min(finite), max(finite)
    width = (high - low) / 10
    # The highest reward would be in an eleventh range.
    ranges = Counter(min(9, int((reward - low) / width)) for reward in finite)
    return [
        (f"{low + place * width:.4f} … {low + (place + 1) * width:.4f}", low + (place + 0.5) * width, ranges[place])
        for place in sorted(ranges)
    ] + others


def _print(
    console: Console | None, shown: Sequence[tuple[Sequence[Any], float]], rewards: Sequence[float], step: int
) -> None:
    from rich.console import Console

    console = console or Console()
    console.rule(f"Step {step}")
    console.print(_summary(rewards))
    for number, (log, reward) in enumerate(shown, start=1):
        console.print(_sample(number, log, reward))
    console.rule()


def _summary(rewards: Sequence[float]) -> RenderableType:
    from rich.panel import Panel
    from rich.text import Text

    # A NaN would be the mean, and the smallest or the largest by chance; the levels below count it.
    known = [reward for reward in rewards if not math.isnan(reward)]
    text = Text(f"samples {len(rewards)}")
    if known:
        mean = sum(known) / len(known)
        text.append(f"  mean {mean:.4f}  min {min(known):.4f}  max {max(known):.4f}")
    levels = reward_levels(rewards)
    most = max(count for _, _, count in levels)
    for label, reward, count in levels:
        emoji, style = _level(reward)
        text.append(f"\n{emoji} {label:>8} ")
        text.append("█" * max(1, round(count / most * _BAR)), style=style)
        text.append(f" {count}")
    return Panel(text, title="Rewards")


def _sample(number: int, log: Sequence[Any], reward: float) -> RenderableType:
    from rich.panel import Panel
    from rich.table import Table

    emoji, style = _level(reward)
    sides = Table.grid(expand=True, padding=(0, 2))
    sides.add_column("prompt", ratio=1)
    sides.add_column("response", ratio=1)
    sides.add_row(_messages(log, answers=False), _messages(log, answers=True))
    return Panel(sides, title=f"{emoji} Sample {number} | Reward: {reward:.4f}", border_style=style)


def _messages(log: Sequence[Any], *, answers: bool) -> Text:
    """Return one side of a conversation. No markup: what a model says may hold any brackets."""
    from rich.text import Text

    text = Text()
    for role, content in _side(log, answers=answers):
        text.append("\n\n" if text else "").append(f"{role.upper()}: ", style="bold")
        text.append(content, style=_ROLE_STYLES.get(role, ""))
    return text or Text("(no message)", style="dim")


def _text(log: Sequence[Any], *, answers: bool) -> str:
    return "\n\n".join(f"{role}: {content}" for role, content in _side(log, answers=answers))


def _side(log: Sequence[Any], *, answers: bool) -> Iterable[tuple[str, str]]:
    for message in log:
        if isinstance(message, Mapping) and "role" in message and "content" in message:
            role = str(message["role"]).lower()
            if (role in _ANSWERS) == answers:
                yield role, str(message["content"])


def _level(reward: float) -> tuple[str, str]:
    return next(((emoji, style) for least, emoji, style in _LEVELS if reward >= least), _WORST)
