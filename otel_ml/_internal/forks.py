"""Who has made this process: `multiprocessing`, or the fork of a program that has imported otel_ml.

It is known from the import of otel_ml on: nobody can tell later which forks there were, and in which environment.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

__all__ = [
    "FORKS",
    "RANK_VARIABLES",
    "creator",
    "creator_by_multiprocessing",
    "is_imported_again",
    "launch_variables",
    "parent_of_program",
]

RANK_VARIABLES = (
    *("RANK", "LOCAL_RANK", "SLURM_PROCID", "FLUX_TASK_RANK", "OMPI_COMM_WORLD_RANK", "PALS_RANKID", "PMI_RANK"),
    "SUBMITIT_LOCAL_GLOBALID",
)
"""In which launchers say the rank; who has none of them is in no launch that is known by variables."""

_OF_A_LAUNCH = frozenset(
    {
        *RANK_VARIABLES,
        *("WORLD_SIZE", "LOCAL_WORLD_SIZE", "SLURM_STEP_ID"),
        *("OTEL_ML_RANK", "OTEL_ML_WORLD_SIZE", "OTEL_ML_LOCAL_RANK"),
    }
)
_OF_LAUNCHERS = ("GROUP_", "TORCHELASTIC_", "OMPI_COMM_WORLD_", "PMI_", "PMIX_")


def launch_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables by which a process finds its place in a launch."""
    return {name: value for name, value in environ.items() if name in _OF_A_LAUNCH or name.startswith(_OF_LAUNCHERS)}


class Forks:
    """The forks by which this process was made, and those that it has made.

    Attributes:
        creator: the process of which this one is a fork, or a fork of a fork; 0 where there is none.
            Who is given another place in a launch is a rank: its forks begin with it.
        line: the processes in between, and those that `multiprocessing` has had make them.
        environ: the environment at the last fork.
        parent: of `creator`, at the time.
        any: whether this process has forked others.
    """

    def __init__(self) -> None:
        self.creator = 0
        self.line: frozenset[int] = frozenset()
        self.environ: Mapping[str, str] = {}
        self.parent = 0
        self.any = False
        self._ppid = 0

    def watch(self) -> None:
        """See each fork from here on."""
        os.register_at_fork(before=self._before, after_in_parent=self._made, after_in_child=self._was_made)

    def is_place_kept(self, environ: Mapping[str, str]) -> bool:
        """Whether this is a fork that has no other place in a launch than the process that it was forked from."""
        return self.creator != 0 and launch_variables(self.environ) == launch_variables(environ)

    def _before(self) -> None:
        # Asked before the fork: in the child `getppid()` is this process, and nobody knows who was above it.
        self._ppid = os.getppid()

    def _made(self) -> None:
        self.any = True

    def _was_made(self) -> None:
        made_by = os.getppid()
        self.line |= {made_by, creator_by_multiprocessing()} - {0}  # before `multiprocessing` says who this process is
        # A fork of a fork with the same variables of a launch is of the same rank: the first one's creator stays.
        if not self.is_place_kept(os.environ):
            self.creator, self.parent = made_by, self._ppid
        self.environ, self.any = os.environ.copy(), False


FORKS = Forks()
"""Those of this process; a program that it starts is not one."""


def parent_of_program() -> int:
    """Return who has started the program that this process runs: of a fork the parent of the first one."""
    return FORKS.parent if FORKS.is_place_kept(os.environ) else os.getppid()


def creator() -> int:
    """Return the process that has made this one by forks or `multiprocessing`; 0 where none has."""
    return FORKS.creator or creator_by_multiprocessing()


def creator_by_multiprocessing() -> int:
    """Return the process that has made this one by `multiprocessing`; 0 where none has.

    The parent of a forkserver's child is the server.
    """
    module = sys.modules.get("multiprocessing.process")
    if module is None:
        return 0
    parent = module.parent_process()
    if parent is not None:
        return int(parent.pid)
    # While a spawned child imports its program again, `multiprocessing` has not told it yet who its parent is.
    return os.getppid() if is_imported_again() else 0


def is_imported_again() -> bool:
    """Whether `multiprocessing` is importing the program again, for a child that it has spawned."""
    module = sys.modules.get("multiprocessing.process")
    return module is not None and getattr(module.current_process(), "_inheriting", False)
