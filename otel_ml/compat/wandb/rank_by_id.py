"""The rank of a process that names its run by an id, as others may do at the same time, where no launcher counts them.

W&B's client lets such processes overwrite each other. Here a process that lives beside one of the same run and role is
another rank of it, and one that comes after it is its restart.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from otel_ml import env
from otel_ml._internal.identity.free_rank import leave_rank, take_rank
from otel_ml._internal.identity.ranks import detect
from otel_ml._internal.identity.run_identity import Parent
from otel_ml._internal.lifecycle.init_arguments import checked
from otel_ml.config import Config
from otel_ml.warn_once import reporter

__all__ = ["leave", "rank_by_id", "say_rank"]

_TAKEN: set[str] = set()
"""Runs in which this process has taken a rank."""


def rank_by_id(arguments: Mapping[str, Any]) -> int | None:
    """Return the rank that a process takes; None where it is the first, or where somebody else tells its place."""
    config = checked(arguments, os.environ)
    # In turn: no id that others could name too, a rank that the program or its variable gives, a launcher that counts
    # the processes, and a child, which is a part of its parent's rank.
    if not config.id or config.rank is not None or detect(os.environ).world_size > 1 or _is_child_of_run(config):
        return None
    # Also as rank 0: `leave()` gives that place up, too.
    _TAKEN.add(config.id)
    return take_rank(config.id, config.role) or None


def say_rank(run_id: str) -> None:
    """Say that several processes are ranks of one run."""
    reporter.say(
        "one-id",
        f"Several processes of this host name run {run_id!r} by its id, and no launcher tells them apart. Each is a "
        "rank of its own, and a value is the mean over them. If they are not one job, give each an id of its own.",
    )


def leave(run_id: str) -> None:
    """Give the rank that was taken in a run to the next process."""
    if run_id in _TAKEN:
        _TAKEN.discard(run_id)
        leave_rank(run_id)


def _is_child_of_run(config: Config) -> bool:
    """Whether a process of the run has started this one, which is a part of that one's rank."""
    parent = Parent.parse(config.parent)
    return parent is not None and parent.pid != os.getpid() and os.environ.get(env.EXPERIMENT_ID.name) == config.id
