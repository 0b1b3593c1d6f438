"""How a message names its section of the catalogue (`docs/errors.md`): by the command that prints it, on any machine.

Standard library only: the worker and the service end their messages alike.
"""

from __future__ import annotations

__all__ = ["explained", "is_explained"]

_COMMAND = "(otel-ml explain "


def explained(sentence: str, slug: str) -> str:
    """Return `sentence` with the command that explains it, at the end of its first line.

    A sentence that quotes another message keeps that one's command: it knows better what is wrong.

    Examples:
        >>> explained("The spool is full.", "spool-full")
        'The spool is full. (otel-ml explain spool-full)'
        >>> explained("Nothing is recorded: the rank is 'x'. (otel-ml explain wrong-setting)", "nothing-recorded")
        "Nothing is recorded: the rank is 'x'. (otel-ml explain wrong-setting)"
    """
    if not slug or is_explained(sentence):
        return sentence
    first, newline, rest = sentence.partition("\n")
    return f"{first} {_COMMAND}{slug}){newline}{rest}"


def is_explained(sentence: str) -> bool:
    """Return whether a sentence names its section already."""
    return _COMMAND in sentence
