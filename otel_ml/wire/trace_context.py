"""W3C `traceparent`s that also say who made something: role, rank and version, in ids that every tracer takes.

```text
00-RRRRRRRRRRRRRRRRtttttttttttttttt-kkkkvvvvvvccccnn-01
   R  54 bits role, 10 bits check          k  rank, ffff where there is none
   t  random start, counted                v  version, ffffff where there is none
                                           c  check of role, rank and version      n  counts on
```

All contexts of a (role, rank, version) are equal in R, k, v and c: to count them nothing is decoded. 26 bits of check
tell them from ids that another tracer has drawn.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple
from zlib import crc32

__all__ = [
    "LONGEST_ROLE",
    "MAX_RANK",
    "MAX_VERSION",
    "Producer",
    "half_of_role",
    "ids_of",
    "key_of",
    "producer_of",
    "span_half",
    "traceparent",
]

LONGEST_ROLE = 10
"""Letters of a role that a context names."""

MAX_RANK = 0xFFFE
MAX_VERSION = 0xFFFFFE
_NO_RANK, _NO_VERSION = 0xFFFF, 0xFFFFFF

_LETTERS = "\0abcdefghijklmnopqrstuvwxyz0123456789_-."
_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(-.*)?", re.DOTALL)


class Producer(NamedTuple):
    """Who made something.

    Attributes:
        role: its first ten letters; other signs than small letters, digits, `_`, `-` and `.` are `_`.
        rank: in the role, or None.
        version: what it was made with, of a policy for instance; None where nobody said.
    """

    role: str
    rank: int | None
    version: int | None


@lru_cache(maxsize=64)
def half_of_role(role: str) -> int:
    """Return the upper half of the ids of all traces that begin in a role.

    Examples:
        >>> f"{half_of_role('generator'):016x}"
        '1a935afa2fe240d1'
    """
    number = 0
    for letter in role.lower()[:LONGEST_ROLE].ljust(LONGEST_ROLE, "\0"):
        # Ten letters of an alphabet of 40: 40¹⁰ is below 2⁵⁴.
        number = 40 * number + (_LETTERS.find(letter) if letter in _LETTERS else _LETTERS.index("_"))
    return number << 10 | _check(number, 10)


def span_half(role_half: int, rank: int | None, version: int | None, number: int) -> int:
    """Return the span id of a context; what does not fit into its field is none."""
    rank = _NO_RANK if rank is None or not 0 <= rank <= MAX_RANK else rank
    version = _NO_VERSION if version is None or not 0 <= version <= MAX_VERSION else version
    said = rank << 24 | version
    return said << 24 | _check(role_half << 40 | said, 16) << 8 | number & 0xFF


def traceparent(trace_id: int, span_id: int) -> str:
    """Return two ids as the header has them."""
    return f"00-{trace_id:032x}-{span_id:016x}-01"


def ids_of(text: str) -> tuple[int, int] | None:
    """Return trace id and span id of a `traceparent`; (0, 0) where it names none, None where it is no `traceparent`.

    Later versions may add something at the end, as W3C's Trace Context has it.

    Examples:
        >>> one = f"-{1:032x}-{2:016x}-01"
        >>> ids_of(f"00{one}"), ids_of(f"00{one}-more"), ids_of(f"01{one}-more"), ids_of(f"ff{one}")
        ((1, 2), None, (1, 2), None)
    """
    found = _TRACEPARENT.fullmatch(text)
    if found is None or found[1] == "ff" or (found[1] == "00" and found[4]):
        return None
    ids = int(found[2], 16), int(found[3], 16)
    return ids if all(ids) else (0, 0)


def key_of(text: str) -> str:
    """Return what all contexts of a (role, rank, version) have in common."""
    # R, and then k, v and c: the upper half of the trace's id, and the span's without its counter.
    return text[3:19] + text[36:50]


@lru_cache(maxsize=4096)
def producer_of(key: str) -> Producer | None:
    """Return who made what has this key; None where another tracer drew the ids.

    Examples:
        >>> half = half_of_role("generator")
        >>> text = traceparent(half << 64 | 7, span_half(half, 3, 390, 0))
        >>> len(text), producer_of(key_of(text))
        (55, Producer(role='generator', rank=3, version=390))
    """
    # R of 16 digits; k and v, rank and version, of 10; c of 4.
    half, said, check = int(key[:16], 16), int(key[16:26], 16), int(key[26:], 16)
    if _check(half >> 10, 10) != half & 0x3FF or _check(half << 40 | said, 16) != check:
        return None
    rank, version = said >> 24, said & 0xFFFFFF
    return Producer(_role(half >> 10), None if rank == _NO_RANK else rank, None if version == _NO_VERSION else version)


def _role(number: int) -> str:
    letters = []
    for _ in range(LONGEST_ROLE):
        number, letter = divmod(number, 40)
        letters.append(_LETTERS[letter])
    return "".join(reversed(letters)).rstrip("\0")


def _check(number: int, bits: int) -> int:
    return crc32(b"otel_ml" + number.to_bytes(16, "big")) & (1 << bits) - 1
