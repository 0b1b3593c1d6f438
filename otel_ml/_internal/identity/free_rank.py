"""Which rank a process takes in a run that it names by its id, where nobody numbers its processes: the lowest free one.

One that has died, or has left the run, gives its place to the next, which is its restart.
"""

from __future__ import annotations

import itertools
import json
import os
from contextlib import suppress

from otel_ml._internal.error_reporting import reporter
from otel_ml._internal.identity.common_file import UNWRITTEN, common_file
from otel_ml._internal.identity.launcher_process import Process, is_alive, start_time
from otel_ml.wire.pid_namespace import pid_namespace

__all__ = ["leave_rank", "take_rank"]

_FILE = "ranks-by-id-1-{namespace}.json"
"""The number is that of its form: another version of otel_ml does not read it. Nor does a container, whose processes
have numbers of their own."""

Taken = tuple[str, str, int, Process]
"""A run's id, a role, a rank in it, and the process that has it."""


def take_rank(run_id: str, role: str) -> int:
    """Return the rank of this process in a role of a run; the one that it has, where it asks again."""
    try:
        with common_file(_FILE.format(namespace=pid_namespace()), os.O_CREAT) as file:
            # A process that was killed has not left: its entry goes when the next process takes a rank.
            taken = [one for one in _read(file.text) if is_alive(one[3])]
            same = {one[2]: one[3] for one in taken if one[:2] == (run_id, role)}
            rank = next((rank for rank, process in same.items() if process == _own()), None)
            if rank is None:
                # The lowest that is free: the place of one that has died, before a new one.
                rank = next(rank for rank in itertools.count() if rank not in same)
                file.write(json.dumps([*taken, (run_id, role, rank, _own())]))
            return rank
    except OSError as error:
        reporter.say(
            "one-id",
            f"The processes of run {run_id!r} cannot write down which ranks they are: {type(error).__name__}: {error}. "
            "Each is rank 0. Set OTEL_ML_RANK for each.",
            kind=UNWRITTEN,
        )
        return 0


def leave_rank(run_id: str) -> None:
    """Give the rank of this process in a run to the next that asks."""
    with suppress(OSError), common_file(_FILE.format(namespace=pid_namespace()), 0) as file:
        taken = _read(file.text)
        # Without a look at the role: a process has one rank in a run.
        kept = [one for one in taken if (one[0], one[3]) != (run_id, _own())]
        if kept != taken:
            file.write(json.dumps(kept))


def _own() -> Process:
    return os.getpid(), start_time(os.getpid())


def _read(text: str) -> list[Taken]:
    try:
        return [
            (str(run_id), str(role), int(rank), (int(pid), int(started)))
            for run_id, role, rank, (pid, started) in json.loads(text)
        ]
    except (ValueError, TypeError):
        return []  # a new file, or one that was damaged
