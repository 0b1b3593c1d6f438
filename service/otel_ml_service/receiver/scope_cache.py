"""The scope of a message of ours: step, axis, reduction and running number.

The bytes of a scope repeat but for three numbers. Once one of a form was decoded, others are recognized by their
constant bytes: a mask leaves out the seven value bits of each byte of a number, and keeps the bit that says where
it ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope

from otel_ml.exceptions import WireError
from otel_ml.wire import attributes as wire
from otel_ml.wire.protobuf import places
from otel_ml.wire.reduction import Reduction
from otel_ml_exporters.records import JsonValue
from otel_ml_service.receiver.attribute_values import attributes
from otel_ml_service.receiver.known_forms import find_form
from otel_ml_service.receiver.point_coordinates import coordinates, reduction_of
from otel_ml_service.receiver.request_parts import key_and_value

__all__ = ["ScopeCache", "ScopeForm", "ScopeHead"]

_FORMS = 1024
"""Forms remembered: one for each reduction, axis, and length of its numbers."""

_SAME_LENGTH = 16
"""Forms of one length: each is tried, so that a sender with ever new ones would slow the others down."""

_ATTRIBUTE, _INTEGER = 0x1A, 0x18
"""Tags: InstrumentationScope.attributes, AnyValue.int_value."""


class ScopeHead(NamedTuple):
    """What the scope of a message of ours says; `axis` and `step` are None together."""

    axis: str | None
    step: int | None
    reduction: Reduction
    seq: int
    seq_points: int | None


class ScopeForm(NamedTuple):
    """A scope but for its numbers, which lie at (start, end); (0, 0) where there is none."""

    mask: bytes
    constant: bytes
    step: tuple[int, int]
    seq: tuple[int, int]
    seq_points: tuple[int, int]
    axis: str | None
    reduction: Reduction

    def read(self, scope: bytes) -> ScopeHead:
        """Return what a scope of this form says."""
        return ScopeHead(
            self.axis,
            _number(scope, *self.step),
            self.reduction,
            _number(scope, *self.seq) or 0,
            _number(scope, *self.seq_points),
        )


class ScopeCache:
    """Reads scopes, and remembers their forms.

    Attributes:
        forms: those that are known, by size.
    """

    def __init__(self) -> None:
        self.forms: dict[int, list[ScopeForm]] = {}
        self._count = 0

    def of(self, scope: bytes) -> ScopeHead | None:
        """Return what an encoded InstrumentationScope says; None where it is none of ours, or says nonsense."""
        form = find_form(self.forms, scope)
        return self._learn(scope) if form is None else form.read(scope)

    def _learn(self, scope: bytes) -> ScopeHead | None:
        message = InstrumentationScope.FromString(scope)
        head = _head(message.name, attributes(message.attributes))
        if head is None:
            return None
        forms = self.forms.get(len(scope), [])
        numbers = _numbers_of(scope) if len(forms) < _SAME_LENGTH else None
        if numbers is not None:
            if self._count >= _FORMS:
                self.forms.clear()
                forms, self._count = [], 0
            mask = _mask(len(scope), numbers.values())
            nowhere = (0, 0)
            step, seq, points = (numbers.get(key, nowhere) for key in (wire.STEP, wire.SEQ, wire.SEQ_POINTS))
            constant = bytes(byte & kept for byte, kept in zip(scope, mask, strict=True))
            form = ScopeForm(mask, constant, step, seq, points, head.axis, head.reduction)
            forms.append(form)
            self.forms[len(scope)] = forms
            self._count += 1
        return head


def _head(name: str, found: Mapping[str, JsonValue]) -> ScopeHead | None:
    seq, points = found.get(wire.SEQ), found.get(wire.SEQ_POINTS)
    if name != wire.SCOPE or not isinstance(seq, int):
        return None
    try:
        where = coordinates(found)
        reduction = reduction_of(where)
    except (ValueError, WireError):
        return None
    if where.step is None and wire.AXIS in found:
        return None  # of a position the step is its value then: the decoder reads it
    axis = None if where.step is None else where.axis
    return ScopeHead(axis, where.step, reduction, seq, points if isinstance(points, int) else None)


_NUMBERS = {key.encode(): key for key in (wire.STEP, wire.SEQ, wire.SEQ_POINTS)}


def _numbers_of(scope: bytes) -> Mapping[str, tuple[int, int]] | None:
    """Return where the numbers of `ScopeHead` lie; None where a form of it would not be safe."""
    try:
        return _numbers(scope)
    except WireError:  # it has fields that only a decoder skips, such as groups
        return None


def _numbers(scope: bytes) -> Mapping[str, tuple[int, int]] | None:
    """Return where the numbers lie; None where a key comes twice, or a number may be negative."""
    found: dict[str, tuple[int, int]] = {}
    keys: set[bytes] = set()
    for attribute in places(scope):
        if attribute.tag != _ATTRIBUTE:
            continue
        key, value = key_and_value(scope, attribute)
        # The decoder takes the last of equal keys: which one that is a form does not tell.
        if key in keys:
            return None
        keys.add(key)
        if key in _NUMBERS and value is not None:
            [*parts] = places(scope, value.start, value.end)
            if len(parts) != 1 or parts[0].tag != _INTEGER or parts[0].end - parts[0].start > _POSITIVE:
                return None
            found[_NUMBERS[key]] = (parts[0].start, parts[0].end)
    return found


_POSITIVE = 9
"""Bytes of the largest positive number; a negative one has ten."""


def _mask(size: int, numbers: Iterable[tuple[int, int]]) -> bytes:
    mask = bytearray(b"\xff" * size)
    for start, end in numbers:
        # Varints: of each byte the bit that says whether it goes on must be the same, for it tells where they end.
        mask[start:end] = b"\x80" * (end - start)
    return bytes(mask)


def _number(scope: bytes, start: int, end: int) -> int | None:
    size = end - start
    if size == 2:  # most numbers have two or three bytes; what is taken off are the bits that say “it goes on”
        return scope[start] + (scope[start + 1] << 7) - 0x80
    if size == 3:
        return scope[start] + (scope[start + 1] << 7) + (scope[start + 2] << 14) - 0x4080
    if not size:
        return None
    value = scope[start] & 0x7F
    for shift in range(1, size):
        value |= (scope[start + shift] & 0x7F) << 7 * shift
    return value
