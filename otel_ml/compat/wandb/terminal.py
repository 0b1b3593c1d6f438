"""`wandb.termlog()` and the like: lines on stderr, as W&B prints them."""

from __future__ import annotations

import sys

__all__ = ["termerror", "termlog", "termwarn"]

_PRINTED: set[str] = set()


def termlog(string: str = "", newline: bool = True, repeat: bool = True, prefix: bool = True) -> None:
    """Print a line; with `repeat=False` once, with `prefix=False` without `wandb: `."""
    _print(string, newline=newline, repeat=repeat, prefix=prefix)


def termwarn(string: str, newline: bool = True, repeat: bool = True, prefix: bool = True) -> None:
    """Print a warning."""
    _print(f"WARNING {string}", newline=newline, repeat=repeat, prefix=prefix)


def termerror(string: str, newline: bool = True, repeat: bool = True, prefix: bool = True) -> None:
    """Print an error."""
    _print(f"ERROR {string}", newline=newline, repeat=repeat, prefix=prefix)


def _print(text: str, *, newline: bool, repeat: bool, prefix: bool) -> None:
    if not repeat and text in _PRINTED:
        return
    _PRINTED.add(text)
    lines = text.splitlines() if newline else [text]
    sys.stderr.write("".join(f"{'wandb: ' if prefix else ''}{line}{chr(10) if newline else ''}" for line in lines))
