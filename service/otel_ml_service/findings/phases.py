"""What timers measure, work or waiting: whoever is long in waiting waits for somebody else."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Literal

__all__ = [
    "NOTHING_SAID",
    "STEP",
    "UNTIMED",
    "WHOLE_PIPELINE",
    "TimerKind",
    "accuses",
    "accusing",
    "in_order",
    "is_amount",
    "is_between_stages",
    "is_collective",
    "is_pausing",
    "is_routed",
    "is_waiting",
    "meeting",
]

TimerKind = Literal["work", "wait"]
"""What a timer was declared to measure (`timed(…, kind=…)`)."""

NOTHING_SAID: Mapping[str, TimerKind] = {}
"""Of no timer: their names tell."""

STEP = "step"
"""The phase around all others, where `steps()` or an integration times whole steps."""

WHOLE_PIPELINE = "forward-backward"
"""Megatron's timer around all that a rank does with its micro-batches, waiting for other stages too."""

UNTIMED = "untimed"
"""The phase of what a step takes outside of its timers."""

_BETWEEN_STAGES = r"recv|receive|send|p2p"

_WAITING = re.compile(
    rf"(^| )({_BETWEEN_STAGES}|wait|waiting|barrier|sync|synchronize|idle|bubble|blocked|broadcast|bcast|nccl[a-z]*|"
    r"collective|comm|communication|all ?reduce|all ?gather|all ?to ?all|reduce ?scatter|rendezvous|clip)( |$)"
)
"""Words of torch, NCCL, Megatron and RL frameworks for communication; to clip gradients takes a norm over ranks."""

_COLLECTIVE = re.compile(r"(^| )(barrier|all ?reduce|all ?gather|all ?to ?all|reduce ?scatter)( |$)")
"""Of these, what nobody leaves before all have come."""

_ROUTED = re.compile(r"(^| )(experts?|moe)( |$)")

_PAUSING = re.compile(
    r"(^| )(data|dataloader|loader|load|loading|prefetch|fetch|get batch|batch generator|checkpoint|checkpointing|ckpt|"
    r"save|saving|gc|garbage|eval|evaluate|evaluation|validate|validation|compile|recompile|log|logging)( |$)"
)
"""Words for what a job does now and then while its training stands still."""

_STAGES = re.compile(rf"(^| )({_BETWEEN_STAGES})( |$)")

_AMOUNT = re.compile(r"(^| )(tokens?|samples?|sequences?|examples?|episodes?|frames?|lengths?|seq ?len|tflop)$")
_NO_AMOUNT = re.compile(r"(^| )(per|rate|ratio|fraction|max|maximum|min|mean|avg|queue|seen|dropped|evicted)( |$)")
"""Of what is recorded once for each rank and step: not of a rate, and not of what has been seen since the beginning."""


@lru_cache(maxsize=4096)
def is_waiting(phase: str) -> bool:
    """Whether a timer's name says that it measures communication, or waiting.

    Examples:
        >>> [is_waiting(name) for name in ("backward-recv", "grads-reduce-scatter", "allReduce", "ncclKernel")]
        [True, True, True, True]
        >>> [is_waiting(name) for name in ("forward-compute", "optimizer", "receiver_setup", "asynchronous")]
        [False, False, False, False]
    """
    return _WAITING.search(_words(phase)) is not None


@lru_cache(maxsize=4096)
def is_collective(phase: str) -> bool:
    """Whether a timer's name says that all who are in it leave it together.

    Examples:
        >>> [is_collective(name) for name in ("grads-all-reduce", "ncclAllGather", "recv", "ncclBroadcast", "log")]
        [True, True, False, False, False]
    """
    return _COLLECTIVE.search(_words(phase)) is not None


def accuses(phase: str, kinds: Mapping[str, TimerKind] = NOTHING_SAID) -> bool:
    """Whether a rank that is long in a timer may be slow: what was declared of it counts, else its name.

    Examples:
        >>> accuses("sync_weights"), accuses("sync_weights", {"sync_weights": "work"})
        (False, True)
        >>> accuses("fetch"), accuses("fetch", {"fetch": "wait"})
        (True, False)
    """
    kind = kinds.get(phase)
    return kind == "work" if kind is not None else not (is_waiting(phase) or is_routed(phase))


def accusing(phases: Sequence[str], kinds: Mapping[str, TimerKind] = NOTHING_SAID) -> tuple[bool, ...]:
    """Return of each timer whether it `accuses()`: asked in each step, of nearly always the same ones."""
    return _accusing(tuple(phases), tuple(map(kinds.get, phases)))


@lru_cache(maxsize=256)
def _accusing(phases: tuple[str, ...], declared: tuple[TimerKind | None, ...]) -> tuple[bool, ...]:
    said = {phase: kind for phase, kind in zip(phases, declared, strict=True) if kind is not None}
    return tuple(accuses(phase, said) for phase in phases)


def meeting(phases: Sequence[str], kinds: Mapping[str, TimerKind] = NOTHING_SAID) -> tuple[bool, ...]:
    """Return of each timer whether all who are in it leave it together: of work nobody says so."""
    return tuple(is_collective(phase) and kinds.get(phase) != "work" for phase in phases)


@lru_cache(maxsize=4096)
def is_routed(phase: str) -> bool:
    """Whether a timer's name says that how much there is to do depends on where a router sends tokens.

    A rank that is long in it has popular experts, for as long as they are popular: it is not slow.
    """
    return _ROUTED.search(_words(phase)) is not None


@lru_cache(maxsize=4096)
def is_pausing(phase: str) -> bool:
    """Whether a timer's name says that training stands still meanwhile: for data, a checkpoint, a garbage collector.

    So does what is in no timer, where whole steps are timed.

    Examples:
        >>> [is_pausing(name) for name in ("data", "saveCheckpoint", "gc", UNTIMED, "forward", "dataset_mixing_loss")]
        [True, True, True, True, False, False]
    """
    return phase == UNTIMED or _PAUSING.search(_words(phase)) is not None


@lru_cache(maxsize=4096)
def is_between_stages(phase: str) -> bool:
    """Whether a timer's name says that one pipeline stage sends to another, or receives from it."""
    return _STAGES.search(_words(phase)) is not None


@lru_cache(maxsize=4096)
def is_amount(metric: str) -> bool:
    """Whether a metric's name says that it counts what a rank is given to do in a step: its time may go with that.

    Examples:
        >>> [is_amount(name) for name in ("rl/sample/sequence_length", "train/num_tokens", "batch/samples")]
        [True, True, True]
        >>> [is_amount(name) for name in ("tokens_per_sec", "rl/sample/reward", "tokens_seen", "loss", "queue_length")]
        [False, False, False, False, False]
    """
    words = _words(metric.rsplit("/", 1)[-1]).strip()
    return _AMOUNT.search(words) is not None and _NO_AMOUNT.search(words) is None


def in_order(sequences: Iterable[Sequence[str]]) -> tuple[str, ...]:
    """Return the phases of all ranks in an order that each rank's own agrees with, as far as there is one.

    Args:
        sequences: of each rank, its phases in the order in which they begin.

    Examples:
        The first stage of a pipeline receives nothing, and the others receive before they compute:

        >>> in_order([("compute", "reduce"), ("recv", "compute", "reduce")])
        ('recv', 'compute', 'reduce')
    """
    before: dict[str, set[str]] = {}
    for sequence in sequences:
        for place, phase in enumerate(sequence):
            # The phase right before it is enough: that one has its own before it.
            before.setdefault(phase, set()).update(sequence[max(place - 1, 0) : place])
    ordered: dict[str, None] = {}
    while len(ordered) < len(before):
        waiting = [phase for phase in before if phase not in ordered]
        # Where two ranks have two phases in opposite orders, the one that was heard of first comes first.
        ordered[next((phase for phase in waiting if before[phase] <= ordered.keys()), waiting[0])] = None
    return tuple(ordered)


def _words(name: str) -> str:
    """Return a name in lower case with its words apart: `allReduce` is `all reduce`."""
    return re.sub(r"[^a-z0-9]+", " ", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower())
