"""Saying what the original did and we do not: once for each place in the program, which is named."""

from __future__ import annotations

import sys
from pathlib import Path

from otel_ml._internal.guard import guard

__all__ = ["call_site", "not_kept"]


def not_kept(what: str, instead: str) -> None:
    """Say that `what` the program asked for is not done as in the original, and what happens instead."""
    guard.say("not-kept", f"{what} at {call_site()} is accepted and not kept as it is: {instead}")


def call_site() -> str:
    """Return file and line of the user's call: the innermost frame that is none of ours."""
    frame = sys._getframe(1)  # noqa: SLF001 (CPython's own; `inspect` reads files to say the same)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("otel_ml."):
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
