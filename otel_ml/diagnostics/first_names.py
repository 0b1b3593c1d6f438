"""What there is, in a message that something is not there: a model has thousands of parameters."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["first_names"]

_MOST = 20


def first_names(names: Sequence[str]) -> str:
    """Return the first names, and how many more there are.

    Examples:
        >>> first_names(["a", "b"])
        'a, b'
        >>> first_names([str(number) for number in range(22)])[-13:]
        '19 and 2 more'
    """
    more = f" and {len(names) - _MOST} more" if len(names) > _MOST else ""
    return ", ".join(names[:_MOST]) + more
