"""Names of otel_ml's own account are not for other programs: what they send under such a name would pass for it."""

from __future__ import annotations

from otel_ml.wire.published_name import is_own

__all__ = ["require_others"]

_SHOWN = 100
"""Characters of a name in a reason."""


def require_others(name: str) -> None:
    """Raise where a name of another program would be published as one of otel_ml's own.

    Raises:
        ValueError: it would.
    """
    if is_own(name):
        raise ValueError(f"the name {name[:_SHOWN]!r} is one of otel_ml's own account ('otel_ml/'); use another one.")
