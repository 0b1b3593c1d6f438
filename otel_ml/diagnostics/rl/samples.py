"""What was generated: rewards, episodes, groups, lengths."""

from __future__ import annotations

import math
from typing import Any

from otel_ml._internal.devices.copy_to_device import copy_to_device
from otel_ml._internal.timers.context import Context
from otel_ml.diagnostics.rl.mean_and_range import one_a_sample
from otel_ml.diagnostics.rl.table import measure
from otel_ml.never_raises import never_raises
from otel_ml.warn_once import reporter

__all__ = ["batch_reward", "episode", "groups", "sequence_lengths"]


@never_raises
def batch_reward(rewards: Any, *, correct: Any = None, environment: str = "", contexts: Any = None) -> None:
    """Record the rewards of a batch; with `environment`, as a series of its own.

    Args:
        rewards: one a sample: numbers, an array, or a tensor on any device, which is not waited for.
        correct: whether each sample's answer is, as many as rewards: also splits the reward. One between 0 and 1
            is how correct it is: its reward counts by that as correct, and by the rest as incorrect.
        environment: a tag, such as the name of a validation set or of a task.
        contexts: what came with each sample (`otel_ml.context()`), as many as rewards: also splits the reward by who
            made it, `…/generator/3`, so that `otel-ml why` tells whose samples it fell by.
    """
    attributes = {"environment": environment} if environment else None
    numbers = one_a_sample(rewards)
    if len(numbers):
        measure("rl/sample/reward").record(numbers, attributes=attributes)
    if contexts is not None:
        _by_producer(numbers, list(contexts))
    if correct is None:
        return
    verdicts = one_a_sample(correct)
    if len(verdicts) != len(numbers):
        reporter.drop(
            "bad_value",
            f"batch_reward(): correct= has {len(verdicts)} verdicts for {len(numbers)} rewards, which are not split "
            "therefore. Pass one a reward.",
        )
    elif len(verdicts):
        measure("rl/sample/correct").record(verdicts, attributes=attributes)
        _split(numbers, verdicts, attributes)


def _by_producer(numbers: Any, contexts: list[Any]) -> None:
    """Record rewards for each producer; of a context that is none of ours nobody knows whose it is."""
    if len(contexts) != len(numbers):
        reporter.drop(
            "bad_value",
            f"batch_reward(): contexts= has {len(contexts)} contexts for {len(numbers)} rewards, which are not split "
            "by producer therefore. Pass one a reward.",
        )
        return
    of_sample = [str(context) for context in contexts]
    known = {text: Context(text) for text in dict.fromkeys(of_sample)}  # all samples of a span share one
    who = {text: (one.role, one.rank) for text, one in known.items() if one.role and one.rank is not None}
    reward = measure("rl/sample/reward")
    for role, rank in sorted(set(who.values())):
        mine = [place for place, text in enumerate(of_sample) if who.get(text) == (role, rank)]
        # So that the published name ends in `generator/3`, by which `otel-ml why` knows its producer.
        reward.record(_chosen(numbers, mine), attributes={role: str(rank)})


def _chosen(numbers: Any, places: list[int]) -> Any:
    """Return those at some places; on a device nothing is waited for."""
    if isinstance(numbers, list):
        return [numbers[place] for place in places]
    import torch

    return numbers[copy_to_device(torch.tensor(places, device="cpu"), numbers)]


def _split(numbers: Any, verdicts: Any, attributes: dict[str, str] | None) -> None:
    """Record rewards weighed by how correct each is, and by how incorrect."""
    if isinstance(verdicts, list):
        numbers, verdicts = _from_0_to_1(numbers, verdicts)
        others = [1.0 - verdict for verdict in verdicts]
    else:  # to look at them would be to wait: who reads a weight of NaN leaves its value out, and says so
        verdicts = verdicts.masked_fill(~((verdicts >= 0.0) & (verdicts <= 1.0)), math.nan)
        others = 1.0 - verdicts
    right, wrong = measure("rl/sample/reward/correct"), measure("rl/sample/reward/incorrect")
    for split, weights in ((right, verdicts), (wrong, others)):
        chosen, weights_of_chosen = _weighing(numbers, weights)
        if len(chosen):
            split.record(chosen, weight=weights_of_chosen, attributes=attributes)


def _from_0_to_1(numbers: Any, verdicts: list[float]) -> tuple[Any, list[float]]:
    """Return those whose verdict is from 0 to 1; the others are said."""
    wrong = [verdict for verdict in verdicts if not 0.0 <= verdict <= 1.0]
    if not wrong:
        return numbers, verdicts
    reporter.drop(
        "bad_value",
        f"batch_reward(): correct= has verdicts that are not from 0 to 1, such as {wrong[0]!r}. Their rewards are not "
        "split. Pass 1 for a correct answer, 0 for an incorrect one, or how correct it is.",
        count=len(wrong),
        kind="batch_reward(): verdicts",
    )
    known = [place for place, verdict in enumerate(verdicts) if 0.0 <= verdict <= 1.0]
    return _chosen(numbers, known), [verdicts[place] for place in known]


def _weighing(numbers: Any, weights: Any) -> tuple[Any, Any]:
    """Return those with a weight; of a device all, as they are not known yet."""
    if not isinstance(numbers, list) or not isinstance(weights, list):
        return numbers, weights
    # A NaN among the rewards is that also with a weight of 0.
    places = [place for place, weight in enumerate(weights) if weight]
    return [numbers[place] for place in places], [weights[place] for place in places]


@never_raises
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


@never_raises
def groups(rewards: Any) -> None:
    """Record how rewards differ inside each group of samples of one prompt, as group-relative methods use them.

    Args:
        rewards: of each group those of its samples: lists, or an array or tensor of shape [groups, samples], which is
            not waited for where it is on a device.

    Examples:
        >>> import torch
        >>> groups([[1.0, 0.0, 1.0], [0.0, 0.0, 0.0]])
        >>> groups(torch.tensor([1.0, 0.0, 1.0, 1.0]).view(2, 2))
    """
    if hasattr(rewards, "detach"):
        _groups_of_tensor(rewards.detach())
        return
    deviations, uniform = [], []
    for group in (one_a_sample(group) for group in rewards):
        if len(group):
            # The population's deviation: a group is all there is, and not a sample of one.
            mean = sum(group) / len(group)
            deviations.append((sum((reward - mean) ** 2 for reward in group) / len(group)) ** 0.5)
            uniform.append(float(min(group) == max(group)))
    if deviations:
        measure("rl/sample/group_reward_std").record(deviations)
        measure("rl/sample/group_uniform").record(uniform)


def _groups_of_tensor(rewards: Any) -> None:
    if rewards.dim() != 2:
        reporter.drop(
            "bad_value",
            f"groups(): expected rewards of shape [groups, samples], got {tuple(rewards.shape)}. Use view(-1, n).",
        )
    elif rewards.numel():
        rewards = rewards.float()
        measure("rl/sample/group_reward_std").record(rewards.std(dim=1, unbiased=False))
        measure("rl/sample/group_uniform").record((rewards.amin(dim=1) == rewards.amax(dim=1)).float())


@never_raises
def sequence_lengths(lengths: Any) -> None:
    """Record the distribution of sequence lengths in tokens: numbers, an array or a tensor."""
    counts = one_a_sample(lengths)
    if len(counts):
        measure("rl/sample/sequence_length").record(counts)
        measure("rl/sample/sequence_length/distribution").record(counts)
