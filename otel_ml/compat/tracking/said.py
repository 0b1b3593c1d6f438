"""Saying what the original did and we do not, and what failed: once for each place, which is named."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, ParamSpec

from otel_ml.once import reporter

__all__ = ["call_site", "never_raises", "not_kept", "options_not_kept"]

P = ParamSpec("P")


def not_kept(what: str, instead: str) -> None:
    """Say that `what` the program asked for is not done as in the original, and what happens instead."""
    reporter.say("not-kept", f"{what} at {call_site()} is accepted and not kept as it is: {instead}")


def options_not_kept(call: str, instead: str, **options: Any) -> None:
    """Say which options of a call have no place here; one that is empty or off was not given."""
    given = [f"{name}={value!r:.40}" for name, value in options.items() if value]
    if given:
        not_kept(f"{call}({', '.join(given)})", instead)


def call_site() -> str:
    """Return file and line of the user's call: the innermost frame that is none of ours."""
    frame = sys._getframe(1)  # noqa: SLF001 (CPython's own; `inspect` reads files to say the same)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("otel_ml."):
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"


def never_raises(method: Callable[P, None]) -> Callable[P, None]:
    """Return `method`, whose failures are counted and said: arrays and figures of users fail in any way."""

    @functools.wraps(method)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            method(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 (the boundary to the user's program)
            reporter.failed(f"{method.__qualname__}() at {call_site()}", error)

    return guarded
