"""What the trainer knows of the policy: advantages, KL, clipping, updates, staleness."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import otel_ml
from otel_ml._internal.steps.axes import scope_steps
from otel_ml._internal.timers.context import Context
from otel_ml.diagnostics.rl.mean_and_range import extent_of, one_a_sample
from otel_ml.diagnostics.rl.table import extent_measures, measure
from otel_ml.never_raises import never_raises
from otel_ml.warn_once import reporter

__all__ = [
    "PolicyUpdates",
    "advantages",
    "clip_fractions",
    "entropy",
    "kl",
    "policy_staleness",
    "returns",
    "state_values",
]


@never_raises
def advantages(values: Any, mask: Any = None) -> None:
    """Record mean, minimum and maximum of advantages.

    Args:
        values: tensor of any shape, array or numbers; of a device tensor only sums are copied.
        mask: of the same shape; true counts.
    """
    _three("rl/train/advantage", values, mask)


@never_raises
def returns(values: Any, mask: Any = None) -> None:
    """Record mean, minimum and maximum of returns; arguments as for `advantages()`."""
    _three("rl/train/return", values, mask)


@never_raises
def state_values(values: Any, mask: Any = None) -> None:
    """Record mean, minimum and maximum of the critic's values; arguments as for `advantages()`."""
    _three("rl/train/value", values, mask)


@never_raises
def kl(values: Any, mask: Any = None) -> None:
    """Record mean, minimum and maximum of the KL divergence per token; arguments as for `advantages()`."""
    _three("rl/train/kl", values, mask)


@never_raises
def entropy(values: Any, mask: Any = None) -> None:
    """Record the mean entropy per token or action; arguments as for `advantages()`."""
    found = extent_of(values, mask)
    if found is not None:
        measure("rl/train/entropy").record(found.mean, weight=found.number)


@never_raises
def clip_fractions(ratio: Any, mask: Any = None, *, low: float = 0.2, high: float = 0.2) -> None:
    """Record probability ratios, and which part of them PPO's clip cuts below 1 - `low` and above 1 + `high`.

    Args:
        ratio: a tensor: new by old probability.
        mask: of the same shape; true counts.
        low: lower clip.
        high: upper clip.
    """
    _three("rl/train/ratio", ratio, mask)
    for name, cut in (("low", ratio < 1 - low), ("high", ratio > 1 + high)):
        found = extent_of(cut, mask)
        if found is not None:
            measure(f"rl/train/clip_fraction_{name}").record(found.mean, weight=found.number)


def _three(name: str, values: Any, mask: Any) -> None:
    found = extent_of(values, mask)
    if found is None:
        return
    rows = extent_measures(name)
    ends = {"min": found.min, "max": found.max}
    # Numbers that are known are one row; tensors of a device come one by one.
    if type(found.mean) is float:
        rows.record(ends, several={name: (found.mean, float(found.number))})
    else:
        rows[name].record(found.mean, weight=found.number)
        rows.record(ends)


class PolicyUpdates:
    """Tells how often the policy is updated, and how far.

    Args:
        clock: seconds; for tests.
    """

    def __init__(self, *, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._last: float | None = None

    @never_raises
    def updated(self, magnitude: Any = None) -> None:
        """The policy was updated: record the rate since the last time, and the norm of the change.

        Args:
            magnitude: L2 norm of new minus old parameters; a number or 0-d tensor.
        """
        now = self._clock()
        if self._last is not None and now > self._last:
            seconds = now - self._last  # its weight: the rates of a step pool to Σ updates / Σ s
            measure("rl/train/update_frequency").record(1.0 / seconds, weight=seconds)
        self._last = now
        if magnitude is not None:
            measure("rl/train/update_magnitude").record(magnitude)


@never_raises
def policy_staleness(versions: Any, *, current: int | None = None, replica: str = "") -> None:
    """Record how many versions the policy is ahead of each sample of a batch.

    With the contexts of samples (`otel_ml.context(version=…)` where each was made) it is `otel_ml.consumed()`, too: the
    run then says which replica, and which of its versions, a step was trained on.

    Args:
        versions: of the policy that made each sample: the generator's step on the axis `policy_version`; numbers, an
            array, or a tensor on any device; or the contexts of the samples, as text.
        current: the version that is trained; by default this process' step on the axis `policy_version`.
        replica: whose samples they are, which makes a series of its own besides that of all.
    """
    if isinstance(versions, (list, tuple)) and any(isinstance(version, str) for version in versions):
        otel_ml.consumed(versions, version=current)
        known = [Context(version).version for version in versions if isinstance(version, str)]
        # A context without a version, or none of ours, tells no age; numbers beside contexts are left out, too.
        versions = [version for version in known if version is not None]
    now = scope_steps().current("policy_version").index if current is None else current
    # Neither said nor known: an age cannot be told without it.
    if now is None:
        reporter.say(
            "no-policy-version",
            "rl/train/staleness is not recorded: this process has no step on the axis policy_version. "
            "Call otel_ml.set_step(version, axis='policy_version'), or pass current=.",
        )
        return
    made = one_a_sample(versions)
    behind = [now - version for version in made] if isinstance(made, list) else now - made
    if len(behind):
        measure("rl/train/staleness").record(behind)
        if replica:
            # Beside that of all, and not instead: ranks without the name of a replica count, too.
            measure("rl/train/staleness").record(behind, attributes={"replica": replica})
