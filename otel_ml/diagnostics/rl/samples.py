"""What was generated: rewards, episodes, groups, lengths."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from otel_ml.diagnostics.harmless import harmless
from otel_ml.diagnostics.rl.table import measure

__all__ = ["batch_reward", "episode", "groups", "sequence_lengths"]


@harmless
def batch_reward(rewards: Iterable[float], *, correct: Iterable[bool] | None = None, environment: str = "") -> None:
    """Record the rewards of a batch; with `environment`, as a series of its own.

    Args:
        rewards: one a sample.
        correct: whether each sample's answer is: also splits the reward.
        environment: a tag, such as the name of a validation set.
    """
    attributes = {"environment": environment} if environment else None
    numbers = [float(reward) for reward in rewards]
    if numbers:
        measure("rl/sample/reward").record(numbers, attributes=attributes)
    if correct is None:
        return
    verdicts = [bool(verdict) for verdict in correct]
    if verdicts:
        measure("rl/sample/correct").record([float(verdict) for verdict in verdicts], attributes=attributes)
    for name, wanted in (("correct", True), ("incorrect", False)):
        chosen = [reward for reward, verdict in zip(numbers, verdicts, strict=False) if verdict is wanted]
        if chosen:
            measure(f"rl/sample/reward/{name}").record(chosen, attributes=attributes)


@harmless
def episode(reward: Any, length: int, *, environment: str = "") -> None:
    """Record an episode that ended.

    Args:
        reward: sum of its rewards.
        length: its steps.
        environment: a tag, which makes a series of its own.
    """
    attributes = {"environment": environment} if environment else None
    measure("rl/sample/episode_reward").record(reward, attributes=attributes)
    measure("rl/sample/episode_length").record(length, attributes=attributes)


@harmless
def groups(rewards: Iterable[Sequence[float]]) -> None:
    """Record how rewards differ inside each group of samples of one prompt, as group-relative methods use them."""
    deviations, uniform = [], []
    for group in rewards:
        if group:
            mean = sum(group) / len(group)
            deviations.append((sum((reward - mean) ** 2 for reward in group) / len(group)) ** 0.5)
            uniform.append(float(min(group) == max(group)))
    if deviations:
        measure("rl/sample/group_reward_std").record(deviations)
        measure("rl/sample/group_uniform").record(uniform)


@harmless
def sequence_lengths(lengths: Iterable[int]) -> None:
    """Record the distribution of sequence lengths in tokens."""
    counts = [float(length) for length in lengths]
    if counts:
        measure("rl/sample/sequence_length").record(counts)
        measure("rl/sample/sequence_length/distribution").record(counts)
