"""What a value is called in SwanLab, which keeps the first value of each (metric, step) and ignores others."""

from __future__ import annotations

import re
from collections.abc import Mapping

from otel_ml.wire.safe_names import unique_identifier
from otel_ml.wire.short_digest import short_digest
from otel_ml_exporters.records import StepRecord

__all__ = ["NAMES", "Names", "identifier", "metric_key"]

_FORBIDDEN = re.compile(r"[^A-Za-z0-9_+.\-]")
_OWN = "__swanlab__"
"""SwanLab's own metrics begin so; it leaves out others that do."""


NAMES = "otel_ml/names"
"""Entry of the config: `{"key in SwanLab": "name as it was recorded"}`, of those that differ."""

_DERIVED = re.compile(r"\Asummary/|/(?:over_time|attempt_\d+|amended(?:_\d+)?)\Z")
"""What is made here of a metric's key: a name that is written so would be another metric's correction."""

_MAX_NAME = 512 - 64
"""SwanLab's limit without the characters for what tells a key from others: an attempt, a correction."""


class Names:
    """Gives every name a key that SwanLab takes, and that is no other name's.

    Args:
        keys: key → name, of those that differed so far.

    Attributes:
        mapped: name → key, of those that differ.
    """

    def __init__(self, keys: Mapping[str, str]) -> None:
        self.mapped = {name: key for key, name in keys.items()}
        self._keys = set(keys)

    def key(self, name: str) -> str:
        """Return the key of a name, the same each time, in any order and after a restart.

        Examples:
            >>> names = Names({})
            >>> [names.key(name) for name in ("mAP@[0.5:0.95]", "./loss", "metric/loss", "loss/amended")]
            ['mAP@[0.5:0.95]', 'metric/loss-6bcb4330', 'metric/loss', 'metric/loss/amended-f8d891b6']
        """
        if name not in self.mapped and self._fits(name):
            return name
        if name not in self.mapped:
            # In front, so that a name that was refused cannot look like one that is derived: `summary/x` becomes
            # `metric/summary/x-…`.
            begin = f"metric/{name.strip('./')}"[: _MAX_NAME - 9].rstrip("./")
            key = self.mapped[name] = f"{begin}-{short_digest(name)}"
            self._keys.add(key)
        return self.mapped[name]

    def _fits(self, name: str) -> bool:
        is_taken = name.startswith(_OWN) or _DERIVED.search(name) or name in self._keys
        return name == name.strip("./") and not is_taken and len(name) <= _MAX_NAME


def metric_key(key: str, record: StepRecord) -> str:
    """Return the metric of a value: its key, and apart where another value of that name has the same step.

    Examples:
        >>> metric_key("loss", StepRecord(9, "trainer", "step", 3, 1, 0.0, {}))
        'loss/attempt_1'
        >>> metric_key("loss", StepRecord(9, "trainer", "time", 3, 0, 0.0, {}))
        'loss/over_time'
    """
    # Seconds and steps would be one series, of which SwanLab keeps what came first.
    if record.axis == "time":
        key = f"{key}/over_time"
    return f"{key}/attempt_{record.attempt}" if record.attempt else key


def identifier(text: str, limit: int = 100) -> str:
    """Return `text` if it can be a project or a run id, else one that is unique to it.

    Examples:
        >>> identifier("team/run")
        'team-run-a3e54ec8'
    """
    return unique_identifier(text, _FORBIDDEN, limit)
