"""`wandb.termlog()` and the like: lines on stderr, as W&B prints them."""

from __future__ import annotations

import sys

__all__ = ["termerror", "termlog", "termwarn"]

_PRINTED: set[str] = set()


def termlog(string: str = "", newline: bool = True, repeat: bool = True) -> None:
    """Print a line; with `repeat=False` once."""
    _print(string, newline=newline, repeat=repeat)


def termwarn(string: str, newline: bool = True, repeat: bool = True) -> None:
    """Print a warning."""
    _print(f"WARNING {string}", newline=newline, repeat=repeat)


def termerror(string: str, newline: bool = True, repeat: bool = True) -> None:
    """Print an error."""
    _print(f"ERROR {string}", newline=newline, repeat=repeat)


def _print(text: str, *, newline: bool, repeat: bool) -> None:
    if not repeat and text in _PRINTED:
        return
    _PRINTED.add(text)
    sys.stderr.write("".join(f"wandb: {line}\n" for line in text.splitlines()) if newline else f"wandb: {text}")
