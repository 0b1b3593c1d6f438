"""What a process failed with: as a text for backends, and as a sentence for the job (docs/protocol.md §4.9)."""

from __future__ import annotations

import re
import textwrap
from typing import TYPE_CHECKING

from otel_ml.wire import attributes as keys
from otel_ml.wire.published_name import published_name

if TYPE_CHECKING:
    from otel_ml_service.aggregation.observation import Event

__all__ = ["FAILURE", "KILLED", "NOT_KILLED", "failed_with", "failure_text", "place_in", "who_failed"]

FAILURE = f"{keys.RESERVED_PREFIX}failure"
KILLED = f"{keys.RESERVED_PREFIX}killed"
"""Names of the texts, of who was killed the second; behind it `/rank_3` of others than rank 0."""
NOT_KILLED = "Not killed: what it sent last has come later."
"""The text named `KILLED` that takes back the one before: a record that was published stays."""

_FRAME = re.compile(r'^ *File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>.+)$', re.MULTILINE)
# Files of installed packages and of Python itself: which line of the program called them says more.
_INSTALLED = re.compile(r"[/\\](?:site-packages|dist-packages|python3(?:\.\d+)?)[/\\]|^<frozen ")

_LONGEST = 300
"""Characters of a message in a sentence; the text has all of it."""


def failure_text(event: Event) -> str:
    """Return Markdown: type and message, then the traceback as it is printed."""
    trace = str(event.attributes.get(keys.EXCEPTION_STACKTRACE) or "")
    return f"{_what(event)}\n\n{textwrap.indent(trace, '    ')}".rstrip()


def failed_with(event: Event) -> str:
    """Return type, message and place in one line."""
    place = place_in(str(event.attributes.get(keys.EXCEPTION_STACKTRACE) or ""))
    what = " ".join(_what(event).split())[:_LONGEST]
    return f"{what} ({place})" if place else what


def who_failed(role: str, rank: int) -> str:
    """Return who it was; the role where it says something.

    Examples:
        >>> who_failed("trainer", 3), who_failed("generator", 0)
        ('Rank 3', 'Rank 0 of generator')
    """
    is_named = published_name(role, keys.DEFAULT_AXIS, "x") != "x"
    return f"Rank {rank} of {role}" if is_named else f"Rank {rank}"


def place_in(trace: str) -> str:
    r"""Return where a traceback ends, in a file of the program if there is one; "" where it does not say.

    Examples:
        >>> place_in('  File "/job/train.py", line 88, in step\n    loss.backward()\nRuntimeError: no memory')
        'train.py:88 in step'
    """
    frames = list(_FRAME.finditer(trace))
    if not frames:
        return ""
    own = [frame for frame in frames if not _INSTALLED.search(frame["file"])]
    last = (own or frames)[-1]
    return f"{last['file'].rpartition('/')[2]}:{last['line']} in {last['function']}"


def _what(event: Event) -> str:
    kind = str(event.attributes.get(keys.EXCEPTION_TYPE) or "Exception").removeprefix("__main__.")
    message = str(event.attributes.get(keys.EXCEPTION_MESSAGE) or "")
    return f"{kind}: {message}" if message else kind
