"""A failure of ours is counted and reported once, and never raised into training: for `compat` and `diagnostics`."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec

from otel_ml.warn_once import reporter

__all__ = ["call_site", "never_raises"]

P = ParamSpec("P")


def never_raises(function: Callable[P, None]) -> Callable[P, None]:
    """Let `function` fail without its caller: under `OTEL_ML_STRICT=true` it raises all the same."""

    @functools.wraps(function)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            function(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 (the boundary to the user's program)
            reporter.failed(f"{function.__qualname__}() at {call_site()}", error)

    return guarded


_BETWEEN = ("otel_ml.", "importlib._boot", "contextlib")


def call_site() -> str:
    """Return file and line of the user's call: the innermost frame that is none of ours, nor of `import` or `with`."""
    frame = sys._getframe(1)  # noqa: SLF001 (CPython's own; `inspect` reads files to say the same)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(_BETWEEN):
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
