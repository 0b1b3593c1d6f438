"""What a value is called in SwanLab, which keeps the first value of each (metric, step) and ignores others."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping

from otel_ml_exporters.records import StepRecord

__all__ = ["amended_key", "identifier", "metric_key"]

_FORBIDDEN = re.compile(r"[^A-Za-z0-9_+.\-]")
_OWN = "__swanlab__"
"""SwanLab's own metrics begin so; it leaves out others that do."""


def metric_key(name: str, record: StepRecord) -> str:
    """Return the metric of a value: as published, and apart where another value of that name has the same step.

    Examples:
        >>> metric_key("loss", StepRecord(9, "trainer", "step", 3, 1, 0.0, {}))
        'loss/attempt_1'
        >>> metric_key("loss", StepRecord(9, "trainer", "time", 3, 0, 0.0, {}))
        'loss/over_time'
    """
    key = f"metric/{name}" if name.startswith(_OWN) or name != name.strip("./") else name
    key = key.rstrip("./") or "metric"
    if record.axis == "time":
        key = f"{key}/over_time"
    return f"{key}/attempt_{record.attempt}" if record.attempt else key


def amended_key(key: str, step: int, amended: Mapping[str, int]) -> tuple[str, dict[str, int]]:
    """Return the metric of a correction, and the counts with it.

    Examples:
        >>> amended_key("loss", 4, {"loss@4": 1})
        ('loss/amended_2', {'loss@4': 2})
    """
    place = f"{key}@{step}"
    number = amended.get(place, 0) + 1
    return f"{key}/amended" + (f"_{number}" if number > 1 else ""), {**amended, place: number}


def identifier(text: str, limit: int = 100) -> str:
    """Return `text` if it can be a project or a run id, else one that is unique to it.

    Examples:
        >>> identifier("team/run")
        'team-run-a3e54ec8'
    """
    if text and len(text) <= limit and not _FORBIDDEN.search(text):
        return text
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{_FORBIDDEN.sub('-', text)[: limit - 9]}-{digest}"
