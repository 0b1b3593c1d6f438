"""States of several processes become one metric a key, merged exactly."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from otel_ml.compat.forge.accumulators import MetricAccumulator
from otel_ml.compat.forge.metric import Metric, Reduce
from otel_ml.compat.forge.states import KNOWN, State
from otel_ml.exceptions import ConfigError
from otel_ml.warn_once import say

__all__ = ["merged_metrics", "reduce_metrics_states", "say_failed"]


def say_failed(key: str, error: Exception) -> None:
    """Say that a reduction failed with a value or a state."""
    say(
        "compat-forge",
        f"Metric {key!r} is not recorded: its reduction failed with {type(error).__name__}: {error}. "
        "The others are; correct the reduction or the value.",
    )


def reduce_metrics_states(states: Sequence[Mapping[str, State]]) -> list[Metric]:
    """Merge the states of several processes exactly, key by key.

    Raises:
        ConfigError: a ValueError; processes disagree about the reduction of a key. A flush goes on, see
            `merged_metrics()`.
    """
    for key in _keys(states):
        kinds = list(_by_kind(key, states))
        if len(kinds) > 1:
            named = " vs ".join(kinds)
            wrong = f"Mismatched reduction types for key {key!r}: {named}. Give it one of them."
            raise ConfigError(wrong, slug="compat-forge")
    return merged_metrics(states)


def merged_metrics(states: Sequence[Mapping[str, State]]) -> list[Metric]:
    """Merge the states of several processes exactly, key by key; never raises.

    A key whose processes disagree about its reduction becomes one metric for each, `key/<reduction>`: said, and no
    reason to lose the others.
    """
    return [metric for key in _keys(states) for metric in _merged(key, states)]


def _keys(states: Sequence[Mapping[str, State]]) -> Iterable[str]:
    return dict.fromkeys(key for state in states for key in state)


def _by_kind(key: str, states: Sequence[Mapping[str, State]]) -> dict[str, list[State]]:
    by_kind: dict[str, list[State]] = {}
    for state in states:
        if key in state:
            by_kind.setdefault(_kind(state[key]["reduction_type"]), []).append(state[key])
    return by_kind


def _merged(key: str, states: Sequence[Mapping[str, State]]) -> Iterator[Metric]:
    by_kind = _by_kind(key, states)
    if len(by_kind) > 1:
        say(
            "compat-forge",
            f"Metric {key!r} has several reductions: {', '.join(sorted(by_kind))}. "
            f"Each is recorded as {key}/<reduction>. Give it one, or two names.",
        )
    for kind, merged in by_kind.items():
        if _are_empty(kind, merged):
            continue
        try:
            value = KNOWN[kind].get_reduced_value_from_states(merged)
        except Exception as error:  # noqa: BLE001 (a user's reduction fails in any way)
            say_failed(key, error)
            continue
        # A reduction of a program's own may have nothing to say.
        if value is not None:
            yield Metric(key if len(by_kind) == 1 else f"{key}/{kind}", value, _reduction_of(kind))


def _are_empty(kind: str, states: Iterable[State]) -> bool:
    """Whether states of `Reduce` have taken no value; torchforge's say of some not how many they have: one or more."""
    return kind in _NUMBERS and not any(state.get("count", 1) for state in states)


def _kind(reduction: Any) -> str:
    """Return what `KNOWN` calls a reduction that a state names: by its name, or by what has it as `value`."""
    # torchforge's states have the text, and those in the example of its `reduce_metrics_states()` the member of
    # `Reduce`.
    return str(getattr(reduction, "value", reduction))


def _reduction_of(kind: str) -> Reduce | type[MetricAccumulator]:
    return Reduce(kind) if kind in {reduce.value for reduce in Reduce} else KNOWN[kind]


_NUMBERS = frozenset(reduce.value for reduce in Reduce if reduce is not Reduce.SAMPLE)
"""Reductions whose states say how many values they are of."""
