"""OTLP logs → events and shutdown messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from otel_ml.wire import attributes as wire
from otel_ml_exporters.records import JsonValue
from otel_ml_service.aggregation.observation import Event, Observation, ShutdownMessage, Writer
from otel_ml_service.receiver.attribute_values import attributes, plain
from otel_ml_service.receiver.heartbeat import amount, amounts, count_or_none
from otel_ml_service.receiver.own_names import require_others
from otel_ml_service.receiver.partial_success import Rejections
from otel_ml_service.receiver.point_coordinates import coordinates

__all__ = ["decode_events"]

_NO_EVENT = "the log record has no event_name; ordinary log lines are not kept, only events are."
_EVENT_NAME = "event.name"
"""Where SDKs before OTLP 1.5 put the event's name."""

_STATUSES: Mapping[str, Literal["finished", "failed", "killed"]] = {
    "finished": "finished",
    "failed": "failed",
    "killed": "killed",
}


def decode_events(writer: Writer, scope_logs: Any, rejections: Rejections) -> list[Observation]:
    """Return the observations of one ScopeLogs; what cannot be used is added to `rejections`."""
    scope = attributes(scope_logs.scope.attributes)
    own = scope_logs.scope.name == wire.SCOPE
    found: list[Observation] = []
    for record in scope_logs.log_records:
        try:
            found.append(_observation(writer, record, scope, own=own))
        except ValueError as error:
            rejections.add(str(error))
    return found


def _observation(writer: Writer, record: Any, scope: Mapping[str, JsonValue], *, own: bool) -> Observation:
    given = attributes(record.attributes)
    kind = record.event_name or given.pop(_EVENT_NAME, "")
    if not isinstance(kind, str) or not kind:
        raise ValueError(_NO_EVENT)
    # A sender may leave out when it happened: whoever collected it then says when it saw it.
    time_ns = record.time_unix_nano or record.observed_time_unix_nano
    seq = given.pop(wire.SEQ, None)
    # Only in a scope of ours is it a running number: an attribute of another program says nothing of what is missing.
    number = seq if own and isinstance(seq, int) else None
    if kind == wire.EVENT_WRITER_END and number is not None:
        return _shutdown_message(writer, number, time_ns, given)
    where = coordinates({**scope, **given})
    body = record.body.bytes_value if record.body.WhichOneof("value") == "bytes_value" else plain(record.body)
    if number is None:
        _require_names_of_others(kind, given, body)
    rest = {key: value for key, value in given.items() if key not in {wire.STEP, wire.AXIS}}
    axis = None if where.step is None else where.axis
    return Event(writer, number, kind, time_ns, axis, where.step, rest, body)


def _require_names_of_others(kind: str, given: Mapping[str, JsonValue], body: object) -> None:
    if kind != wire.EVENT_ARTIFACT:  # a file may lie in any folder
        require_others(str(given.get(wire.NAME, "")))
    if kind == wire.EVENT_SUMMARY and isinstance(body, Mapping):
        for name in body:
            require_others(str(name))


def _shutdown_message(writer: Writer, seq: int, time_ns: int, given: Mapping[str, JsonValue]) -> ShutdownMessage:
    return ShutdownMessage(
        writer=writer,
        seq=seq,
        time_ns=time_ns,
        status=_STATUSES.get(str(given.get(wire.STATUS)), "finished"),
        recorded=int(amount(given.get(wire.RECORDED))),
        points=int(amount(given.get(wire.POINTS))),
        dropped=amounts(given.get(wire.DROPPED)),
        overhead_s=amount(given.get(wire.OVERHEAD)),
        duration_s=amount(given.get(wire.DURATION)),
        values=count_or_none(given, wire.VALUES),
        events=count_or_none(given, wire.EVENTS),
        given_up=amounts(given.get(wire.GIVEN_UP)),
    )
