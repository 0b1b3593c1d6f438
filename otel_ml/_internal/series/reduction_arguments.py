"""What the arguments `reduce=`, `within=` and `over=` of a call ask for."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from otel_ml._internal.error_reporting import reporter
from otel_ml._internal.safe_repr import safe_repr
from otel_ml._internal.series.declarations import NOTHING
from otel_ml.exceptions import WireError
from otel_ml.wire.reduction import Reduction

__all__ = ["Reduce", "reduction_from"]

Reduce = str | Iterable[str] | None
"""What `reduce=` accepts: one reduction, or several."""


@lru_cache(maxsize=1024)
def _reduction(across: tuple[str, ...] | None, within: str | None, over: str | None) -> Reduction:
    return (
        Reduction(NOTHING.across, within, over, NOTHING.unsaid) if across is None else Reduction(across, within, over)
    )


def reduction_from(reduce: Reduce, within: str | None, over: str | None, name: object) -> Reduction | None:
    """Return the reduction that the arguments of a call ask for; None where they ask for nothing.

    What is unknown is reported, with the nearest known name, and asks for nothing.
    """
    if reduce is None and within is None and over is None:
        return None
    try:
        across = None if reduce is None else (reduce,) if isinstance(reduce, str) else tuple(reduce)
        return _reduction(across, within, over)
    except (WireError, TypeError) as error:
        reporter.wrong("unknown-reduction", f"Metric {safe_repr(name)}: {error}")
        return None
