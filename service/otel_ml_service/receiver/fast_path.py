"""The fast path of messages whose form is known: taken without decoding them.

Ours by `scope_cache.py` and `message_templates.py`, those of other SDKs by `third_party_fast_path.py`.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence

from otel_ml._internal.native import native
from otel_ml.wire import attributes as wire
from otel_ml.wire.protobuf import field, text
from otel_ml_service.aggregation.observation import (
    Fragment,
    Observation,
    Position,
    ThirdPartyPoints,
    Watermark,
    Writer,
)
from otel_ml_service.aggregation.points import Layout, Packed, Partials
from otel_ml_service.receiver.known_forms import find_form
from otel_ml_service.receiver.message_templates import MessageTemplates
from otel_ml_service.receiver.request_parts import head_and_rest
from otel_ml_service.receiver.resource import seconds
from otel_ml_service.receiver.scope_cache import ScopeCache, ScopeForm, ScopeHead
from otel_ml_service.receiver.third_party_fast_path import Decode, ThirdPartyFastPath
from otel_ml_service.receiver.third_party_points import ThirdPartyReader

__all__ = ["WATERMARKS", "FastPath", "known", "known_in_python"]

_COUNT = struct.Struct("<q")
"""What a watermark says: as_int of its only point."""

_NUMBERS = struct.Struct("<Qqd")
"""What a position says: time_unix_nano and as_int of its only point, and the time since boot."""


class FastPath:
    """Takes messages whose form is known; learns the forms of others.

    Args:
        decode: returns the observations of an encoded ScopeMetrics.
        reader: of messages of other SDKs whose form is not known; None where the decoder has to look at them all.
    """

    def __init__(self, decode: Decode, reader: ThirdPartyReader | None) -> None:
        self._scopes = ScopeCache()
        self._templates = MessageTemplates()
        self._third_party = ThirdPartyFastPath(decode)
        self._reader = reader

    def known(self, writer: Writer, body: bytes, places: list[tuple[int, int]]) -> list[Fragment | Watermark | None]:
        """Return what each ScopeMetrics of a request says, at its place; None where `take` or a decoder has to look."""
        return known(body, places, writer, self._scopes.forms, self._templates.known, WATERMARKS)

    def take(self, writer: Writer, message: bytes) -> Sequence[Observation] | None:
        """Return the observations of an encoded ScopeMetrics; None where it has to be decoded.

        Raises:
            DecodeError: its scope is not protobuf.
        """
        # A message is cut in two because its parts vary differently: the scope changes with every message (step and
        # running number), the metrics only in their numbers. So each has a template of its own.
        split = head_and_rest(message)
        head = self._scopes.of(split[0]) if split is not None else None
        if split is None or head is None:
            return self._of_others(writer, message, split)
        found = _meant(writer, head, split[1], self._templates.known, WATERMARKS) or _position(writer, head, split[1])
        return None if found is None else (found,)

    def _of_others(
        self, writer: Writer, message: bytes, split: tuple[bytes, bytes] | None
    ) -> Sequence[Observation] | None:
        known = self._third_party.take(writer, message)
        if known is not None or self._reader is None or split is None:
            return known
        found = self._reader.take(writer, *split)
        if found is not None:
            self._third_party.learn(message, found)
        return found

    def learn(self, message: bytes, found: Sequence[Observation]) -> None:
        """Note how a ScopeMetrics was decoded."""
        if not found:
            return
        first, split = found[0], head_and_rest(message)
        if isinstance(first, ThirdPartyPoints):
            self._third_party.learn(message, found)
        elif isinstance(first, Fragment) and isinstance(first.partials, Partials) and len(found) == 1 and split:
            self._templates.learn(split[1], first.partials)


def known_in_python(
    body: bytes,
    places: list[tuple[int, int]],
    writer: Writer,
    scopes: Mapping[int, Sequence[ScopeForm]],
    templates: Mapping[int, Sequence[tuple[bytes, bytes, Layout]]],
    watermarks: Mapping[int, Sequence[tuple[bytes, bytes, int]]],
) -> list[Fragment | Watermark | None]:
    """Return what each ScopeMetrics of a request says; None where its form is not among those that are known."""
    found: list[Fragment | Watermark | None] = []
    for start, end in places:
        split = head_and_rest(body[start:end])
        form = find_form(scopes, split[0]) if split is not None else None
        if split is None or form is None:
            found.append(None)
        else:
            found.append(_meant(writer, form.read(split[0]), split[1], templates, watermarks))
    return found


def _meant(
    writer: Writer,
    head: ScopeHead,
    rest: bytes,
    templates: Mapping[int, Sequence[tuple[bytes, bytes, Layout]]],
    watermarks: Mapping[int, Sequence[tuple[bytes, bytes, int]]],
) -> Fragment | Watermark | None:
    """Return what the fields behind a scope say; None where that is not known, or is not what they should."""
    template = find_form(templates, rest)
    if template is not None:
        layout = template[2]
        # A Collector may have cut the message: `seq_points` says how many points the writer sent under this number.
        total = len(layout.series) if head.seq_points is None else head.seq_points
        return Fragment(writer, head.axis, head.step, head.reduction, head.seq, total, Packed(layout, rest))
    watermark = find_form(watermarks, rest)
    if watermark is None or head.axis is None or head.step is None:
        return None
    # The widths are fixed, and every other byte is as it should be: nothing else can be in it.
    [count] = _COUNT.unpack_from(rest, watermark[2])
    return Watermark(writer, head.axis, head.step, count, head.seq) if count >= 0 else None


def _position(writer: Writer, head: ScopeHead, rest: bytes) -> Position | None:
    """Return the position behind a scope, if it is one."""
    for form in _POSITIONS.get(len(rest), ()):
        found = form.fullmatch(rest)
        if found is not None:
            # Eight zero bytes are 0.0: it does not say the time since boot.
            boot = found["boot"] if "boot" in form.groupindex else bytes(8)
            time_ns, value, boot_s = _NUMBERS.unpack(found["time"] + found["value"] + boot)
            # Where the scope has no step the value is one: on which axis, the decoder finds.
            if value < 0 or (head.step is None and value):
                return None
            return Position(writer, head.axis, head.step, head.seq, time_ns, seconds(boot_s))
    return None


# Bytes that are nowhere else in it: names are ASCII, tags and lengths of so short a message below 128.
_TIME, _VALUE, _BOOT = (bytes([number]) * 8 for number in (0xF1, 0xF2, 0xF3))
"""Stand for numbers in a message of which the form is wanted."""

_ORDERS: Sequence[Callable[[Sequence[bytes]], Iterable[bytes]]] = (iter, reversed)
"""In which fields are written: by us, and by the Collector."""


def _count_of(name: str, order: Callable[[Sequence[bytes]], Iterable[bytes]], *, has_boot: bool) -> bytes:
    """Return the Metric field of a watermark or position: a Gauge with one point.

    Args:
        name: of the metric.
        order: in which fields are written: as they are given, ascending, or reversed.
        has_boot: the point has the time since boot as an attribute.
    """

    def joined(*fields: bytes) -> bytes:
        return b"".join(order(fields))

    # An attribute of the point; 0x21 is double_value of an AnyValue.
    boot = field(7, joined(text(1, wire.BOOT_TIME), field(2, b"\x21" + _BOOT)))
    # 0x19 is time_unix_nano, 0x31 as_int: both have 8 bytes, whatever they say.
    point = joined(b"\x19" + _TIME, b"\x31" + _VALUE, *[boot] * has_boot)
    return field(2, joined(text(1, name), field(5, field(1, point))))


def _watermarks() -> Mapping[int, Sequence[tuple[bytes, bytes, int]]]:
    """Return the forms of watermarks by size: mask, what is constant, and where the count stands."""
    found: dict[int, list[tuple[bytes, bytes, int]]] = {}
    for order in _ORDERS:
        metric = _count_of(wire.WATERMARK, order, has_boot=False)
        constant = metric.replace(_TIME, bytes(8)).replace(_VALUE, bytes(8))
        kept = bytes(0 if byte in (*_TIME, *_VALUE) else 0xFF for byte in metric)
        found.setdefault(len(metric), []).append((kept, constant, metric.index(_VALUE)))
    return found


def _positions() -> Mapping[int, Sequence[re.Pattern[bytes]]]:
    """Return what matches positions, by size."""
    found: dict[int, list[re.Pattern[bytes]]] = {}
    for has_boot in (True, False):
        for order in _ORDERS:
            metric = _count_of(wire.POSITION, order, has_boot=has_boot)
            form = re.escape(metric)
            for number, group in ((_TIME, b"time"), (_VALUE, b"value"), (_BOOT, b"boot")):
                form = form.replace(re.escape(number), b"(?P<" + group + b">.{8})")
            found.setdefault(len(metric), []).append(re.compile(form, re.DOTALL))
    return found


WATERMARKS, _POSITIONS = _watermarks(), _positions()

known = known_in_python if native is None else native.message_reader(Fragment, Packed, Watermark)
