"""What a value is called in SwanLab, which keeps the first value of each (metric, step) and ignores others."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import count

from otel_ml.wire.safe_names import unique_identifier
from otel_ml_exporters.records import StepRecord

__all__ = ["NAMES", "Names", "identifier", "metric_key"]

_FORBIDDEN = re.compile(r"[^A-Za-z0-9_+.\-]")
_OWN = "__swanlab__"
"""SwanLab's own metrics begin so; it leaves out others that do."""


NAMES = "otel_ml/names"
"""Entry of the config: `{"key in SwanLab": "name as it was recorded"}`, of those that differ."""

_MAX_KEY = 512
_SUFFIX_LENGTH = 64
"""Characters for what tells a key from others: an attempt, a correction, a number."""


class Names:
    """Gives every name a key that SwanLab takes.

    Args:
        keys: key → name, of those that differed so far.

    Attributes:
        mapped: name → key, of those that differ.
    """

    def __init__(self, keys: Mapping[str, str]) -> None:
        self.mapped = {name: key for key, name in keys.items()}

    def key(self, name: str) -> str:
        """Return the key of a name, the same each time.

        Examples:
            >>> names = Names({})
            >>> [names.key(name) for name in ("mAP@[0.5:0.95]", "./loss", "loss/", "metric")]
            ['mAP@[0.5:0.95]', 'metric/loss', 'metric/loss_2', 'metric']
        """
        is_own = name.startswith(_OWN)
        if name == name.strip("./") and not is_own and len(name) <= _MAX_KEY - _SUFFIX_LENGTH:
            return name
        if name not in self.mapped:
            wanted = f"metric/{name.strip('./')}"[: _MAX_KEY - _SUFFIX_LENGTH].rstrip("./")
            numbered = (wanted if number == 1 else f"{wanted}_{number}" for number in count(1))
            taken = set(self.mapped.values())
            self.mapped[name] = next(key for key in numbered if key not in taken)
        return self.mapped[name]


def metric_key(key: str, record: StepRecord) -> str:
    """Return the metric of a value: its key, and apart where another value of that name has the same step.

    Examples:
        >>> metric_key("loss", StepRecord(9, "trainer", "step", 3, 1, 0.0, {}))
        'loss/attempt_1'
        >>> metric_key("loss", StepRecord(9, "trainer", "time", 3, 0, 0.0, {}))
        'loss/over_time'
    """
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
