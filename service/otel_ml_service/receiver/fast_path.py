"""The fast path of messages whose form is known: taken without decoding them.

Ours by `scope_cache.py` and `message_templates.py`, those of other SDKs by `third_party_fast_path.py`.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence

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
from otel_ml_service.aggregation.points import Packed, Partials
from otel_ml_service.receiver.message_templates import MessageTemplates
from otel_ml_service.receiver.request_parts import head_and_rest
from otel_ml_service.receiver.resource import seconds
from otel_ml_service.receiver.scope_cache import ScopeCache, ScopeHead
from otel_ml_service.receiver.third_party_fast_path import Decode, ThirdPartyFastPath
from otel_ml_service.receiver.third_party_points import ThirdPartyReader

__all__ = ["FastPath"]

_NUMBERS = struct.Struct("<Qqd")
"""What a watermark or a position says: time_unix_nano and as_int of its only point, and the time since boot."""


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
        rest = split[1]
        layout = self._templates.find(rest)
        if layout is None:
            return _count(writer, head, rest)
        # A Collector may have cut the message: `seq_points` says how many points the writer sent under this number.
        total = len(layout.series) if head.seq_points is None else head.seq_points
        return (Fragment(writer, head.axis, head.step, head.reduction, head.seq, total, Packed(layout, rest)),)

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


def _count(writer: Writer, head: ScopeHead, rest: bytes) -> Sequence[Observation] | None:
    """Return the watermark or the position in `rest`, if it is one."""
    for form, make in _COUNTS.get(len(rest), ()):
        found = form.fullmatch(rest)
        if found is not None:
            numbers = found["time"] + found["value"] + (found["boot"] if "boot" in form.groupindex else bytes(8))
            # The widths are fixed, and the regular expression checked every other byte: nothing else can be in it.
            time_ns, value, boot_s = _NUMBERS.unpack(numbers)
            count = make(writer, head, value, time_ns, seconds(boot_s)) if value >= 0 else None
            return None if count is None else (count,)
    return None


def _watermark(writer: Writer, head: ScopeHead, value: int, _time_ns: int, _boot_s: float) -> Watermark | None:
    if head.axis is None or head.step is None:
        return None
    return Watermark(writer, head.axis, head.step, value, head.seq)


def _position(writer: Writer, head: ScopeHead, value: int, time_ns: int, boot_s: float) -> Position | None:
    if head.step is None and value:  # its value is the step: on which axis, the decoder finds
        return None
    return Position(writer, head.axis, head.step, head.seq, time_ns, boot_s)


_TIME, _VALUE, _BOOT = (bytes([number]) * 8 for number in (0xF1, 0xF2, 0xF3))
"""Stand for numbers in a message of which the form is wanted."""


def _form_of(
    name: str, order: Callable[[Sequence[bytes]], Iterable[bytes]], *, has_boot: bool
) -> tuple[int, re.Pattern[bytes]]:
    """Return the size of the Metric field of a watermark or position, a Gauge with one point, and what matches it.

    Args:
        name: of the metric.
        order: in which fields are written: as they are given, ascending, or reversed.
        has_boot: the point has the time since boot as an attribute.
    """

    def joined(*fields: bytes) -> bytes:
        return b"".join(order(fields))

    boot = field(7, joined(text(1, wire.BOOT_TIME), field(2, b"\x21" + _BOOT)))
    point = joined(b"\x19" + _TIME, b"\x31" + _VALUE, *[boot] * has_boot)
    metric = field(2, joined(text(1, name), field(5, field(1, point))))
    form = re.escape(metric)
    for number, group in ((_TIME, b"time"), (_VALUE, b"value"), (_BOOT, b"boot")):
        form = form.replace(re.escape(number), b"(?P<" + group + b">.{8})")
    return len(metric), re.compile(form, re.DOTALL)


_Make = Callable[[Writer, ScopeHead, int, int, float], Observation | None]


def _counts() -> Mapping[int, Sequence[tuple[re.Pattern[bytes], _Make]]]:
    found: dict[int, list[tuple[re.Pattern[bytes], _Make]]] = {}
    kinds: Sequence[tuple[str, _Make, bool]] = (
        (wire.WATERMARK, _watermark, False),
        (wire.POSITION, _position, True),
        (wire.POSITION, _position, False),
    )
    for name, make, has_boot in kinds:
        for order in (iter, reversed):  # ours and the Collector's
            size, form = _form_of(name, order, has_boot=has_boot)
            found.setdefault(size, []).append((form, make))
    return found


_COUNTS = _counts()
