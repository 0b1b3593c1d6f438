"""What of a run's own account is worth a backend's first screen (docs/protocol.md §6.6, ADR 0051).

A backend shows what the user recorded. Of `otel_ml/…` it gets what tells that something is not as it should be:

====================  ==========================================================================
routine               `delivered`, `recorded`, `overhead_s`, `clock/…`, `flushed`: never alone
`lag`                 from when an exporter lacks what was there half a minute ago
counts                `lost`, `dropped/…`, `rejected`, `too_late`, …: from the first that is not 0
`otel_ml/step`        beside other values of its row
everything else       always: findings, slow ranks, members that are missing
====================  ==========================================================================

A series that was shown once goes on: a loss that is taken back, or a lag that is over, is seen to be.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final, TypeAlias

from otel_ml.wire.attributes import RESERVED_PREFIX, TIME_AXIS
from otel_ml_exporters.records import Record, StepRecord, Summary

__all__ = [
    "ALLOWED_LAG_S",
    "LagWatch",
    "Selection",
    "SelfTelemetryFilter",
    "everything",
    "is_count",
    "is_position",
    "is_routine",
    "selection_of",
]

Selection: TypeAlias = Callable[[Record], "Record | None"]
"""What a backend gets of a record; None for nothing."""

ALLOWED_LAG_S: Final = 30
"""Seconds after which an exporter should have what was there: MLflow's takes ten of them to begin with."""

_OWN = re.compile(rf"(?:^|/){re.escape(RESERVED_PREFIX)}(.+)$")
_ROUTINE = re.compile(r"(?:delivered|recorded|overhead_s|clock|flushed)(?:/|$)")
_LAG = "lag/"
_STEP = "step"
_COUNTS = re.compile(
    r"(?:amended|dropped|duplicate|lost|nonfinite|overflow|quantile_coarse|rejected|steps_redone|superseded|too_late)"
    r"(?:/|$)"
)


def everything(record: Record) -> Record:
    """Select all there is."""
    return record


def is_routine(name: str) -> bool:
    """Whether a published name is of otel_ml's own account, and says nothing by itself.

    Examples:
        >>> [is_routine(name) for name in ("otel_ml/delivered/exporter/jsonl", "otel_ml/lost/exporter/jsonl", "loss")]
        [True, False, False]
    """
    return _ROUTINE.match(_own(name)) is not None


def is_count(name: str) -> bool:
    """Whether a published name counts what should be 0.

    Examples:
        >>> is_count("generator/otel_ml/too_late"), is_count("otel_ml/straggler/rank"), is_count("loss")
        (True, False, False)
    """
    return _COUNTS.match(_own(name)) is not None


def is_position(name: str) -> bool:
    """Whether a published name says where in training a row of another axis is.

    Examples:
        >>> is_position("vllm/otel_ml/step"), is_position("otel_ml/straggler/rank"), is_position("step")
        (True, False, False)
    """
    return _own(name) == _STEP


def selection_of(records: Iterable[Record]) -> Selection:
    """Return what a backend gets of a run that is over, from all of its records in their order."""
    found = SelfTelemetryFilter()
    found.note(records)
    return found.select


class LagWatch:
    """Tells which exporters lack what was there half a minute ago, from the rows of the axis `time` in their order.

    Examples:
        >>> row = {"otel_ml/lag/exporter/mlflow": 90.0, "otel_ml/delivered/exporter/mlflow": 10.0}
        >>> watch = LagWatch()
        >>> sorted(watch.behind(0, row)), sorted(watch.behind(30, row))
        ([], ['otel_ml/lag/exporter/mlflow'])
    """

    def __init__(self) -> None:
        self._newest: deque[tuple[int, float]] = deque()

    def behind(self, second: int, values: Mapping[str, float]) -> set[str]:
        """Note a row, and return the names of the lags in it that are too large."""
        lags = [name for name in values if _own(name).startswith(_LAG)]
        if not lags:
            return set()
        delivered = {name: values.get(name.replace(_LAG, "delivered/", 1), 0.0) for name in lags}
        # The newest entry of those that are old enough is kept: what was there then, everybody should have by now.
        while len(self._newest) > 1 and self._newest[1][0] <= second - ALLOWED_LAG_S:
            self._newest.popleft()
        known = self._newest[0][1] if self._newest and self._newest[0][0] <= second - ALLOWED_LAG_S else 0.0
        # Where an exporter is and what it lacks add up to the newest record of that second.
        self._newest.append((second, max(seq + values[name] for name, seq in delivered.items())))
        return {name for name, seq in delivered.items() if values[name] and seq < known}


class SelfTelemetryFilter:
    """One run's; the engine's thread notes what it commits, before the exporters' threads select from it.

    Args:
        kept: what `since` was when the run was committed last.
    """

    def __init__(self, kept: str = "{}") -> None:
        # Replaced as a whole: exporters' threads read it.
        self._since: Mapping[str, int] = json.loads(kept)
        self._lags = LagWatch()

    @property
    def since(self) -> str:
        """Name → `seq` from which it is shown, as JSON."""
        return json.dumps(self._since, sort_keys=True)

    def note(self, records: Iterable[Record]) -> None:
        """Find what is not as it should be, so that it is shown from here on."""
        found: dict[str, int] = {}
        for record in records:
            if isinstance(record, (StepRecord, Summary)):
                for name in self._wrong(record):
                    found.setdefault(name, record.seq)
        if found:
            # What is known stays: `select` has to say the same of a record whenever it is asked, after a restart, too.
            self._since = found | dict(self._since)

    def select(self, record: Record) -> Record | None:
        """Return what a backend gets of a record, or None; the same whenever it is asked."""
        if not isinstance(record, (StepRecord, Summary)):
            return record
        shown = {name: value for name, value in record.values.items() if self._is_shown(name, record.seq)}
        if isinstance(record, StepRecord):
            shown = _without_lone_position(record, shown)
        elif any(map(is_count, shown)):
            shown = dict(record.values)  # so many are lost: of how many
        if len(shown) == len(record.values):
            return record
        return replace(record, values=shown) if shown else None

    def _wrong(self, record: StepRecord | Summary) -> Iterable[str]:
        if isinstance(record, StepRecord) and record.axis == TIME_AXIS:
            yield from self._lags.behind(record.step, record.values)
        for name, value in record.values.items():
            if value != 0 and is_count(name):
                yield name

    def _is_shown(self, name: str, seq: int) -> bool:
        if is_count(name) or _own(name).startswith(_LAG):
            since = self._since.get(name)
            return since is not None and since <= seq
        return not is_routine(name)


def _own(name: str) -> str:
    """Return what a published name is in otel_ml's own account; "" where it is the user's."""
    found = _OWN.search(name)
    return "" if found is None else found[1]


def _without_lone_position(record: StepRecord, shown: dict[str, float]) -> dict[str, float]:
    """Leave out where in training a row is, when nothing else is in it."""
    if record.axis == TIME_AXIS and all(map(is_position, shown)):
        return {}
    return shown
