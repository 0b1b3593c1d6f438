"""OTLP resources → writers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from otel_ml.variable import comma_separated
from otel_ml.wire import attributes as wire
from otel_ml_exporters.records import JsonValue
from otel_ml_service.aggregation.observation import Writer
from otel_ml_service.receiver.attribute_aliases import Aliases
from otel_ml_service.receiver.attribute_values import LONGEST_NAME, as_text, attributes
from otel_ml_service.receiver.partial_success import Unacceptable, sender_of

__all__ = ["PROBED", "Writers", "seconds"]

_CACHED = 65536
"""Resources remembered: more writers than any job has; beyond it the cache starts anew."""

_CACHED_BYTES = 4096
"""Of a resource that is remembered: ours have 500, and a hostile one could have a million."""

_LONGEST_NOTES = 64 * 1024
"""Characters of a run's notes: a text, not a name."""

_LARGEST = 2**31 - 1
"""Largest rank, size, attempt or process id that is one; larger ones would not fit where ranks are counted."""

_NO_EXPERIMENT = (
    f"the resource has no attribute {wire.EXPERIMENT_ID!r}; set it to the id of the run, "
    f"e.g. OTEL_RESOURCE_ATTRIBUTES={wire.EXPERIMENT_ID}=my-run."
)

PROBED = f"the resource has no attribute {wire.EXPERIMENT_ID!r}; it is a probe, and is kept in no run."
"""Why the point of `otel-ml doctor` is not taken: its question is answered, and nobody has to do anything."""


class Writers:
    """Finds the writer of a resource; equal resources give the same object."""

    def __init__(self, aliases: Aliases) -> None:
        self._aliases = aliases
        # Two caches: what came as bytes is found without decoding it, what was decoded already by what it says.
        self._known: dict[bytes, Writer | Unacceptable] = {}
        self._encoded: dict[bytes, Writer | Unacceptable] = {}

    def encoded(self, resource: bytes) -> Writer | Unacceptable:
        """Return the writer of an encoded Resource, or why nothing of it can be accepted.

        Raises:
            DecodeError: it is none.
        """
        found = self._encoded.get(resource)
        if found is None:
            found = self.of(Resource.FromString(resource))
            if len(resource) <= _CACHED_BYTES:
                if len(self._encoded) >= _CACHED:
                    self._encoded.clear()
                self._encoded[resource] = found
        return found

    def of(self, resource: Any) -> Writer | Unacceptable:
        """Return the writer, or why nothing of it can be accepted."""
        key = resource.SerializeToString(deterministic=True)
        found = self._known.get(key)
        if found is not None:
            return found
        found = _writer(self._aliases.resource(attributes(resource.attributes)))
        if len(key) <= _CACHED_BYTES:
            if len(self._known) >= _CACHED:
                self._known.clear()
            self._known[key] = found
        return found


def _writer(found: Mapping[str, JsonValue]) -> Writer | Unacceptable:
    experiment = found.get(wire.EXPERIMENT_ID)
    if not isinstance(experiment, str) or not experiment:
        return _unacceptable(found, "", PROBED if found.get(wire.ROLE) == wire.PROBE else _NO_EXPERIMENT)
    try:
        experiment = _text(found, wire.EXPERIMENT_ID)
        rank = _integer(found, wire.RANK) or 0
        return Writer(
            experiment=experiment,
            role=_text(found, wire.ROLE),
            instance=_text(found, wire.INSTANCE) or _substitute_instance(found, rank),
            rank=rank,
            world_size=_integer(found, wire.WORLD_SIZE),
            local_rank=_integer(found, wire.LOCAL_RANK),
            attempt=_integer(found, wire.ATTEMPT),
            parent=_text(found, wire.PARENT) or None,
            topology=_topology(found),
            host=_text(found, wire.HOST),
            pid=_integer(found, wire.PID) or 0,
            experiment_name=_text(found, wire.EXPERIMENT_NAME),
            run_name=_text(found, wire.RUN_NAME),
            with_role=wire.PREFIX not in found,
            tags=_texts(found.get(wire.TAGS)),
            notes=_text(found, wire.NOTES, _LONGEST_NOTES) or None,
            boot=_text(found, wire.BOOT),
            born=seconds(found.get(wire.BORN)),
            pid_namespace=_text(found, wire.PID_NAMESPACE),
            starter=_text(found, wire.STARTER) or None,
        )
    except ValueError as error:
        return _unacceptable(found, experiment if len(experiment) <= LONGEST_NAME else "", str(error))


def _unacceptable(found: Mapping[str, JsonValue], experiment: str, reason: str) -> Unacceptable:
    role, instance, host = (as_text(found.get(key, "")) for key in (wire.ROLE, wire.INSTANCE, wire.HOST))
    return Unacceptable(experiment, sender_of(role, instance, host), reason)


def _substitute_instance(found: Mapping[str, JsonValue], rank: int) -> str:
    # Many SDKs send no service.instance.id; host, process and rank then tell writers apart.
    return f"{_text(found, wire.HOST)}/{_text(found, wire.PID)}/{rank}"


def _text(found: Mapping[str, JsonValue], key: str, longest: int = LONGEST_NAME) -> str:
    value = found.get(key)
    text = "" if value is None else as_text(value)
    if len(text) > longest:
        raise ValueError(f"the resource attribute {key!r} has {len(text)} characters; expected at most {longest}.")
    return text


def _texts(value: JsonValue) -> tuple[str, ...]:
    if isinstance(value, str):
        return comma_separated(value)
    return tuple(as_text(item) for item in value) if isinstance(value, list) else ()


def seconds(value: object) -> float:
    """Return a time of the clock of `ml.boot`; 0 where there is none, or what is there is no time."""
    return float(value) if isinstance(value, (int, float)) and 0 <= value < math.inf else 0.0


def _integer(found: Mapping[str, JsonValue], key: str) -> int | None:
    value = found.get(key)
    if value is None or value == "":
        return None
    # Attributes that come from OTEL_RESOURCE_ATTRIBUTES are always text.
    if isinstance(value, (int, str)) and not isinstance(value, bool):
        try:
            number = int(value)
        except ValueError:
            number = -1
        if 0 <= number <= _LARGEST:
            return number
    raise ValueError(f"the resource attribute {key!r} is {value!r}; expected a whole number from 0 to {_LARGEST}.")


def _topology(found: Mapping[str, JsonValue]) -> tuple[tuple[str, int, int], ...]:
    dims = []
    # Sorted: who says the same in another order has the same topology.
    for key in sorted(found):
        dim = key[len(wire.TOPOLOGY_PREFIX) :]
        if key.startswith(wire.TOPOLOGY_PREFIX) and not dim.endswith(wire.TOPOLOGY_SIZE_SUFFIX):
            size = _integer(found, key + wire.TOPOLOGY_SIZE_SUFFIX) or 0
            dims.append((dim, _integer(found, key) or 0, size))
    return tuple(dims)
