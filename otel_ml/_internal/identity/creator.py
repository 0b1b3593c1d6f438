"""Who has made this process: `multiprocessing`, or the fork of a program that uses otel_ml."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

__all__ = ["FORKS", "creator", "creator_by_multiprocessing", "is_imported_again"]


class Forks:
    """The fork by which this process was made, and those that it has made.

    Attributes:
        creator: the process that this one was forked from, which used otel_ml by then; else 0.
        environ: the environment at that fork.
        any: whether this process has forked others since it uses otel_ml.
    """

    def __init__(self) -> None:
        self.creator = 0
        self.environ: Mapping[str, str] = {}
        self.any = False
        os.register_at_fork(after_in_parent=self._made, after_in_child=self._was_made)

    def _made(self) -> None:
        self.any = True

    def _was_made(self) -> None:
        self.creator, self.environ, self.any = os.getppid(), os.environ.copy(), False


FORKS = Forks()
"""Those of this process; a program that it starts is not one."""


def creator() -> int:
    """Return the process that has made this one by `multiprocessing` or a fork; 0 where none has."""
    return creator_by_multiprocessing() or FORKS.creator


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
    return os.getppid() if is_imported_again() else 0


def is_imported_again() -> bool:
    """Whether `multiprocessing` is importing the program again, for a child that it has spawned."""
    module = sys.modules.get("multiprocessing.process")
    return module is not None and getattr(module.current_process(), "_inheriting", False)
