"""Do something between two steps of a program that the interpreter tells of: before it opens, lists or removes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

__all__ = ["before"]

Hook = Callable[[str, tuple[object, ...]], None]

_hooks: tuple[Hook, ...] = ()
"""Of the blocks that are open: a hook of the interpreter itself cannot be taken away."""


@contextmanager
def before(event: str, is_meant: Callable[..., bool], do: Callable[[], None]) -> Iterator[None]:
    """Inside the block, call `do` once: at the first audit event of this name whose arguments are meant.

    Args:
        event: one of https://docs.python.org/3/library/audit_events.html, which comes before what it tells of.
        is_meant: is given the arguments of the event.
    """
    waiting = [do]

    def hook(found: str, arguments: tuple[object, ...]) -> None:
        if found == event and waiting and is_meant(*arguments):
            waiting.pop()()

    global _hooks
    _install()
    _hooks = (*_hooks, hook)
    try:
        yield
    finally:
        _hooks = tuple(one for one in _hooks if one is not hook)


@cache
def _install() -> None:
    sys.addaudithook(_tell)


def _tell(event: str, arguments: tuple[object, ...]) -> None:
    for hook in _hooks:
        hook(event, arguments)
