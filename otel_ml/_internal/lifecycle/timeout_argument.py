"""`timeout=` of the calls that wait: they come at the end of a training, so what is wrong is said, and not raised."""

from __future__ import annotations

import math
from contextlib import suppress
from numbers import Real
from typing import TypeVar

from otel_ml._internal.error_reporting import reporter
from otel_ml._internal.safe_repr import safe_repr
from otel_ml.quantities import seconds

__all__ = ["timeout_of"]

D = TypeVar("D", float, None)


def timeout_of(call: str, timeout: object, default: D) -> float | D:
    """Return the seconds that a call may wait; `default` where nobody says any, or what is none."""
    if timeout is None:
        return default
    if isinstance(timeout, Real) and not isinstance(timeout, bool):
        with suppress(Exception):  # of a whole number that no float is as large as, or of a class of the program's
            # `inf` waits for as long as it takes; NaN compares with no moment.
            if not math.isnan(given := float(timeout)):
                return given
    usual = "as long as is usual" if default is None else seconds(default)
    reporter.wrong(
        "bad-timeout", f"{call}(): expected a time-out in seconds, got {safe_repr(timeout)}. It waits {usual}."
    )
    return default
