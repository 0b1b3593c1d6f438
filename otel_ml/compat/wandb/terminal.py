"""`wandb.termlog()` and the like: lines on stderr, as W&B prints them."""

from __future__ import annotations

import sys
from contextlib import suppress

__all__ = ["termerror", "termlog", "termwarn"]

_PRINTED: set[str] = set()


def termlog(string: str = "", newline: bool = True, repeat: bool = True, prefix: bool = True) -> None:
    """Print a line; with `repeat=False` once, with `prefix=False` without `wandb: `."""
    _print(string, newline=newline, repeat=repeat, prefix=prefix)


def termwarn(string: str, newline: bool = True, repeat: bool = True, prefix: bool = True) -> None:
    """Print a warning."""
    _print(_before_each("WARNING ", string), newline=newline, repeat=repeat, prefix=prefix)


def termerror(string: str, newline: bool = True, repeat: bool = True, prefix: bool = True) -> None:
    """Print an error."""
    _print(_before_each("ERROR ", string), newline=newline, repeat=repeat, prefix=prefix)


def _print(text: str, *, newline: bool, repeat: bool, prefix: bool) -> None:
    if not repeat:
        if text in _PRINTED:
            return
        # Of those alone that ask for it: a program may print a line at each step.
        _PRINTED.add(text)
    shown = _before_each("wandb: ", text) if prefix else text
    # No stderr, one that the program has closed, and one whose reader has gone: training goes on.
    with suppress(AttributeError, OSError, ValueError):
        sys.stderr.write(f"{shown}\n" if newline else shown)


def _before_each(mark: str, text: str) -> str:
    return "\n".join(f"{mark}{line}" for line in text.split("\n"))
