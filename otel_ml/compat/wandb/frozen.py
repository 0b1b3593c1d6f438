"""What media are made of, as it is then: W&B writes their files at once, and programs use buffers again."""

from __future__ import annotations

import io
from typing import Any

__all__ = ["frozen"]


def frozen(value: Any) -> Any:
    """Return a copy that what the program does to `value` later does not change; a figure of matplotlib as a PNG.

    Paths, texts and what cannot be copied are returned as they are.
    """
    try:
        return _frozen(value)
    except Exception:  # noqa: BLE001 (somebody's object: who records it says what is wrong with it)
        return value


def _frozen(value: Any) -> Any:
    # By their types alone: a named tuple is not made from one iterable.
    if type(value) in (list, tuple):
        return type(value)(map(_frozen, value))
    if type(value) is dict:
        return {key: _frozen(inside) for key, inside in value.items()}
    if hasattr(value, "savefig"):
        return _drawn(value)
    if hasattr(value, "detach") and hasattr(value, "clone"):
        return value.detach().clone()  # on its device: nothing waits for that
    # Without an import of Pillow: a program that has one of its pictures has imported it.
    is_picture = type(value).__module__.startswith("PIL.")
    return value.copy() if is_picture or (hasattr(value, "shape") and hasattr(value, "copy")) else value


def _drawn(figure: Any) -> bytes:
    """Return a figure of matplotlib, or the current one of its module `pyplot`, as a PNG."""
    content = io.BytesIO()
    figure.savefig(content, format="png")
    return content.getvalue()
