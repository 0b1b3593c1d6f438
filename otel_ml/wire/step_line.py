"""One metric of a step as the service stores it, found in the text: of a long run most of a line is not asked for."""

from __future__ import annotations

import json
import re
from typing import Final, NamedTuple

__all__ = ["MetricFinder", "Point"]

# A role or an axis with an escape does not match: such a line is read as a whole.
_HEAD: Final = re.compile(
    rb'\{"seq":(\d+),"role":"[^"\\]*","axis":"([^"\\]*)","step":(-?\d+),"attempt":(\d+),"time":[^,{]+,"values":\{'
)
_NUMBER: Final = re.compile(rb"(NaN|-?Infinity|-?\d[\d.eE+-]*)[,}]")
_BEHIND: Final = frozenset({"writers_missing", "amendment"})
"""Keys behind the values: a metric of that name is looked for by reading the whole line."""


class Point(NamedTuple):
    """A value of a metric, and where it belongs."""

    seq: int
    axis: str
    step: int
    attempt: int
    value: float


class MetricFinder:
    r"""Finds one metric in lines of `metrics.jsonl`, and in records of `run.db`.

    Args:
        name: as it is published.

    Examples:
        >>> line = b'{"seq":7,"role":"trainer","axis":"step","step":3,"attempt":0,"time":1.5,"values":{"loss":0.25}}\n'
        >>> MetricFinder("loss").find(line)
        Point(seq=7, axis='step', step=3, attempt=0, value=0.25)
        >>> MetricFinder("accuracy").find(line), MetricFinder("time").find(line)
        (None, None)
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._key = json.dumps(name).encode() + b":"
        self._is_behind = name in _BEHIND

    def find(self, line: bytes) -> Point | None:
        """Return the metric's value in a line, or None.

        Raises:
            ValueError: the line is not JSON.
        """
        if self._key not in line:
            return None
        head = _HEAD.match(line)
        if head is None or self._is_behind:
            return self._read(line)
        # A name's own quotes are escaped: only the comma or the brace before it tells where a name begins.
        # `at` is the sign before the name: the brace before the first one, else a comma.
        at = head.end() - 1 if line.startswith(self._key, head.end()) else line.find(b"," + self._key, head.end())
        if at < 0:
            return None
        number = _NUMBER.match(line, at + 1 + len(self._key))
        if number is None:
            return self._read(line)
        seq, axis, step, attempt = head.groups()
        return Point(int(seq), axis.decode(), int(step), int(attempt), float(number[1]))

    def _read(self, line: bytes) -> Point | None:
        row = json.loads(line)
        values = row.get("values") if isinstance(row, dict) else None
        if not isinstance(values, dict) or "step" not in row or self.name not in values:
            return None
        seq, axis, attempt = row.get("seq", 0), row.get("axis", "step"), row.get("attempt", 0)
        return Point(int(seq), str(axis), int(row["step"]), int(attempt), float(values[self.name]))
