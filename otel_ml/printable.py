"""Text of others on a terminal, in a log or a page: what it says, and nothing it does."""

from __future__ import annotations

__all__ = ["printable"]


def printable(text: str) -> str:
    r"""Return one line of `text`: what moves the cursor, colors, breaks lines or turns the direction is written out.

    Examples:
        >>> printable("loss \x1b[31mred\n\u202eexe")
        'loss \\x1b[31mred\\n\\u202eexe'
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)
