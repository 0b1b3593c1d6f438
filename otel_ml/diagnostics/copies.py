"""How many copies of tensors may wait for the background thread."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from typing import Any

from otel_ml._internal.call import Call
from otel_ml._internal.later import later

__all__ = ["MOST_ELEMENTS", "has_room", "look_later"]

MOST_ELEMENTS = 2**17
"""Of one copy: 1 MiB at most, which takes some 50 µs."""

_COPIES = 32
"""The background thread comes five times a second. What is recorded more often is looked at without a copy."""

_WAITING: deque[Call] = deque(maxlen=_COPIES)

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_WAITING.clear)  # its parent looks at those


def has_room() -> bool:
    """Whether one more may wait."""
    return len(_WAITING) < _COPIES or _WAITING[0].is_done


def look_later(function: Callable[..., None], *arguments: Any) -> None:
    """Do as `later()`; among the arguments is a copy."""
    call = later(function, *arguments)
    if call is not None:
        _WAITING.append(call)
