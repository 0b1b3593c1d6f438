"""Attributes of programs that call a step, a rank or a run by another name: read as ours.

A key of ours that is there, too, wins. What otel_ml's own writers send is left as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from otel_ml.wire import attributes as wire
from otel_ml_exporters.records import JsonValue

__all__ = ["ALIASED", "Aliases", "may_have_alias"]

ALIASED: Mapping[str, str] = {
    "experiment": wire.EXPERIMENT_ID,
    "experiment_name": wire.EXPERIMENT_NAME,
    "run_name": wire.RUN_NAME,
    "role": wire.ROLE,
    "rank": wire.RANK,
    "world_size": wire.WORLD_SIZE,
    "local_rank": wire.LOCAL_RANK,
    "attempt": wire.ATTEMPT,
    "step": wire.STEP,
    "axis": wire.AXIS,
    "reduction": wire.REDUCTION,
}
"""What `aliases` in `otel-ml.yaml` calls an attribute; `topology.<dim>` and `topology.<dim>.size` beside these."""

_TOPOLOGY = "topology."


def may_have_alias(name: str) -> bool:
    """Whether `aliases` in `otel-ml.yaml` may have this name."""
    return name in ALIASED or name.startswith(_TOPOLOGY)


class Aliases:
    """Knows which attributes of others mean which of ours.

    Args:
        named: what `ALIASED` calls an attribute → the key that the program uses.
    """

    def __init__(self, named: Mapping[str, str]) -> None:
        self._ours = {key: ALIASED.get(name, f"ml.{name}") for name, key in named.items()}

    def resource(self, found: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
        """Return the attributes of a resource under our keys."""
        named = {ours: found[key] for key, ours in self._ours.items() if key in found and ours not in found}
        return {**found, **named} if named else found

    def rename(self, scope: Any) -> None:
        """Give the attributes of a ScopeMetrics, ScopeSpans or ScopeLogs, and of all in it, our keys."""
        # What our own workers send has our keys already.
        if self._ours and scope.scope.name != wire.SCOPE:
            for attributes in _attributes_of(scope):
                self._rename(attributes)

    def _rename(self, attributes: Any) -> None:
        keys = {pair.key for pair in attributes}
        for pair in attributes:
            ours = self._ours.get(pair.key)
            if ours is not None and ours not in keys:
                pair.key = ours


def _attributes_of(scope: Any) -> Iterator[Any]:
    yield scope.scope.attributes
    for field, items in scope.ListFields():
        if field.name == "metrics":
            kinds = ((metric, metric.WhichOneof("data")) for metric in items)
            points = (point for metric, kind in kinds if kind for point in getattr(metric, kind).data_points)
            yield from (point.attributes for point in points)
        elif field.name in {"spans", "log_records"}:
            yield from (item.attributes for item in items)
