"""What a fetcher answers to a flush: the states of its process, or those of each rank of a mesh."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from otel_ml._internal.safe_repr import safe_repr
from otel_ml.compat.forge.states import State
from otel_ml.warn_once import say

__all__ = ["states_in"]


def states_in(fetcher: str, answer: Any) -> list[Mapping[str, State]]:
    """Return the states that an answer has, of each process; what is none is said and left out."""
    found: list[Mapping[str, State]] = []
    for process in answer.values() if _is_by_rank(answer) else [answer]:
        if isinstance(process, Mapping):
            found.append({key: state for key, state in process.items() if _is_state(fetcher, key, state)})
        elif process is not None:
            _say_wrong(fetcher, process, "")
    return found


def _is_by_rank(answer: Any) -> bool:
    """Whether the fetcher of a whole mesh answered: name of a rank → its states."""
    states = answer.values() if isinstance(answer, Mapping) else ()
    # One process answers key → state, and each state has a `reduction_type`; a mesh answers rank → such a dictionary.
    is_nested = any(isinstance(state, Mapping) for state in states)
    return is_nested and not any(_has_reduction(state) for state in states)


def _is_state(fetcher: str, key: Any, given: Any) -> bool:
    if _has_reduction(given):
        return True
    _say_wrong(fetcher, given, f" under {safe_repr(key)}")
    return False


def _has_reduction(given: Any) -> bool:
    return isinstance(given, Mapping) and "reduction_type" in given


def _say_wrong(fetcher: str, given: Any, where: str) -> None:
    # Its type alone: the value is another one at each flush.
    say(
        "compat-forge",
        f"Fetcher {fetcher!r} answered a flush with a {type(given).__name__}{where}. Expected key → state, each state "
        "with its 'reduction_type', as MetricCollector().flush(step, return_state=True) returns them. It is left out, "
        "and all else is flushed; have that flush() return states.",
    )
