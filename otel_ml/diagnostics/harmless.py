"""What a diagnostic gets wrong is counted and reported once, and never raised into training."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec

from otel_ml.once import reporter

__all__ = ["harmless"]

P = ParamSpec("P")


def harmless(function: Callable[P, None]) -> Callable[P, None]:
    """Let `function` fail without its caller: under `OTEL_ML_STRICT=true` it raises all the same."""

    @functools.wraps(function)
    def call(*arguments: P.args, **options: P.kwargs) -> None:
        try:
            function(*arguments, **options)
        except Exception as error:  # noqa: BLE001 - the boundary to the user's program
            reporter.failed(f"{function.__qualname__}()", error)

    return call
