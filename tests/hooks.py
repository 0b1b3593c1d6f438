"""Do something between two steps of a program that the interpreter tells of: before it opens, lists or removes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["before"]

_hooks: dict[int, Callable[[str, tuple[object, ...]], None]] = {}
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

    if not _hooks:
        _install()
    key = id(hook)
    _hooks[key] = hook
    try:
        yield
    finally:
        del _hooks[key]
    assert not waiting, f"no {event} was seen that is meant"


_installed: list[bool] = []


def _install() -> None:
    if not _installed:
        _installed.append(True)
        sys.addaudithook(lambda event, arguments: [hook(event, arguments) for hook in [*_hooks.values()]] and None)
