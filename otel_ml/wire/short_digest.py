"""Eight digits that tell names apart which are written alike where a store takes fewer characters, or shorter ones."""

from __future__ import annotations

import hashlib

__all__ = ["short_digest"]


def short_digest(text: str) -> str:
    """Return eight hexadecimal digits of a text, the same on every host.

    Examples:
        >>> short_digest("loss@5")
        '32cf576b'
    """
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]
