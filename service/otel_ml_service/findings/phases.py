"""Which timers measure waiting: whoever is long in these waits for somebody else."""

from __future__ import annotations

import re
from functools import lru_cache

__all__ = ["UNTIMED", "is_between_stages", "is_waiting"]

UNTIMED = "untimed"
"""The phase of what a step takes outside of its timers."""

_BETWEEN_STAGES = r"recv|receive|send|p2p"

_WAITING = re.compile(
    rf"(^| )({_BETWEEN_STAGES}|wait|waiting|barrier|sync|synchronize|idle|bubble|blocked|broadcast|bcast|nccl[a-z]*|"
    r"collective|comm|communication|all ?reduce|all ?gather|all ?to ?all|reduce ?scatter|rendezvous|clip)( |$)"
)
"""Words that torch, NCCL, Megatron and RL frameworks use for communication; to clip gradients takes a norm over ranks."""

_STAGES = re.compile(rf"(^| )({_BETWEEN_STAGES})( |$)")


@lru_cache(maxsize=4096)
def is_waiting(phase: str) -> bool:
    """Whether a timer's name says that it measures communication, or waiting.

    Examples:
        >>> [is_waiting(name) for name in ("backward-recv", "grads-reduce-scatter", "allReduce", "ncclKernel_AllGather")]
        [True, True, True, True]
        >>> [is_waiting(name) for name in ("forward-compute", "optimizer", "receiver_setup", "asynchronous")]
        [False, False, False, False]
    """
    return _WAITING.search(_words(phase)) is not None


@lru_cache(maxsize=4096)
def is_between_stages(phase: str) -> bool:
    """Whether a timer's name says that one pipeline stage sends to another, or receives from it."""
    return _STAGES.search(_words(phase)) is not None


def _words(name: str) -> str:
    """Return a name in lower case with its words apart: `allReduce` is `all reduce`."""
    return re.sub(r"[^a-z0-9]+", " ", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower())
