"""Events and summary values as bytes (`tensorboard/compat/proto/{event,summary,tensor}.proto`)."""

from __future__ import annotations

import io
import struct
import wave
from collections.abc import Iterable, Mapping, Sequence, Set
from itertools import chain

from otel_ml.wire.protobuf import double, field, integer, text, varint

__all__ = [
    "ScalarEncoder",
    "audio_value",
    "event",
    "float32",
    "histogram_value",
    "image_value",
    "plugin_value",
    "string_tensor",
    "text_value",
    "version_event",
]

# Event
_STEP, _FILE_VERSION, _SUMMARY = 2, 3, 5
_WALL_TIME = b"\x09"  # field 1, double
_DOUBLE = struct.Struct("<d")
_FLOAT = struct.Struct("<f")
# Summary.Value
_TAG, _IMAGE, _AUDIO, _TENSOR, _METADATA = 1, 4, 6, 8, 9
_SIMPLE_VALUE = b"\x15"  # field 2, float
_FLOAT_BYTES = 4
# TensorProto and its DataType
_DTYPE, _SHAPE, _CONTENT, _STRINGS = 1, 2, 4, 8
_DT_DOUBLE, _DT_STRING = 2, 7


def float32(value: float) -> bytes:
    """Return `value` as a little-endian float, ±Inf where it is too large for one.

    Examples:
        >>> float32(1e300) == float32(float("inf"))
        True
    """
    try:
        return _FLOAT.pack(value)
    except OverflowError:
        return _FLOAT.pack(float("inf") if value > 0 else float("-inf"))


def version_event(time: float) -> bytes:
    """Return the Event every file begins with; TensorBoard sorts runs by its time."""
    return double(1, time) + text(_FILE_VERSION, "brain.Event:2")


def event(time: float, step: int, values: bytes) -> bytes:
    """Return an Event at `time` (seconds since the epoch) with all `values` of one step."""
    # A step of 0 is what readers have where there is none.
    at = integer(_STEP, step) if step else b""
    return b"".join((_WALL_TIME, _DOUBLE.pack(time), at, field(_SUMMARY, values)))


_MOST_SHAPES = 64
"""Rows of one role and axis have few different sets of names; where they have many, remembering them is of no use."""


class ScalarEncoder:
    """Scalars of one role and axis: the bytes around the values are made once for a set of names.

    Where steps are not those of the default axis, the first value of a name carries a description
    that says so; TensorBoard shows it beside the chart.
    """

    def __init__(self, description: str) -> None:
        self._metadata = _described("scalars", description)
        self._names: set[str] = set()
        self._shapes: dict[tuple[str, ...], tuple[struct.Struct, list[bytes | float]]] = {}

    def encode(self, values: Mapping[str, float]) -> tuple[bytes, list[str]]:
        """Return the Summary's values, and the names not seen before."""
        names = tuple(values)
        shape = self._shapes.get(names)
        if shape is not None:
            return _packed(shape, values), []
        new = [name for name in names if name not in self._names]
        self._names.update(new)
        # Not remembered as a shape: only the first value of a name has the description, and the next row of these names
        # has none.
        if new:
            first = frozenset(new) if self._metadata else frozenset()
            return _packed(_shape(names, first, self._metadata), values), new
        if len(self._shapes) >= _MOST_SHAPES:
            self._shapes.clear()
        shape = self._shapes[names] = _shape(names, frozenset(), b"")
        return _packed(shape, values), []


def _shape(names: Iterable[str], described: Set[str], metadata: bytes) -> tuple[struct.Struct, list[bytes | float]]:
    """Return how to pack a row of `names`, and what to pack: heads, each before the place of its value."""
    heads = [_scalar_head(name, metadata if name in described else b"") for name in names]
    parts: list[bytes | float] = []
    for head in heads:
        parts += head, 0.0
    # `<9sf12sf` for two names: the bytes before a value, and the value.
    return struct.Struct("<" + "".join(f"{len(head)}sf" for head in heads)), parts


def _packed(shape: tuple[struct.Struct, list[bytes | float]], values: Mapping[str, float]) -> bytes:
    row, heads = shape
    parts = heads.copy()
    # Every second part is a value.
    parts[1::2] = values.values()
    try:
        return row.pack(*parts)
    # `struct` refuses a double beyond the range of a float: then each value is looked at by itself.
    except OverflowError:
        parts[1::2] = [_FLOAT.unpack(float32(value))[0] for value in values.values()]
        return row.pack(*parts)


def _scalar_head(name: str, metadata: bytes) -> bytes:
    """Return everything of a Summary.Value up to the four bytes of its value."""
    # The tag of `simple_value` ends it, so that the four bytes of the float come right behind.
    head = text(_TAG, name) + metadata + _SIMPLE_VALUE
    return varint(1 << 3 | 2) + varint(len(head) + _FLOAT_BYTES) + head


def plugin_value(tag: str, plugin: str, tensor: bytes, content: bytes = b"") -> bytes:
    """Return a value that a TensorBoard plugin shows; `content` is the plugin's own metadata."""
    data = text(1, plugin) + (field(2, content) if content else b"")
    return _value(tag, field(_METADATA, field(1, data)) + field(_TENSOR, tensor))


def _value(tag: str, rest: bytes) -> bytes:
    return field(1, text(_TAG, tag) + rest)


def string_tensor(string: bytes) -> bytes:
    """Return a TensorProto of one string, without dimensions: TensorBoard shows those with some as tables."""
    return integer(_DTYPE, _DT_STRING) + field(_SHAPE, b"") + field(_STRINGS, string)


def text_value(tag: str, markdown: str) -> bytes:
    """Return a text, shown as Markdown."""
    return plugin_value(tag, "text", string_tensor(markdown.encode("utf-8", "replace")))


def histogram_value(tag: str, edges: Sequence[float], counts: Sequence[float]) -> bytes:
    """Return a histogram: a tensor of rows (left edge, right edge, count), in doubles."""
    rows = chain.from_iterable(zip(edges[:-1], edges[1:], counts, strict=True))
    content = struct.pack(f"<{3 * len(counts)}d", *rows)
    shape = field(_SHAPE, field(2, integer(1, len(counts))) + field(2, integer(1, 3)))
    return plugin_value(tag, "histograms", integer(_DTYPE, _DT_DOUBLE) + shape + field(_CONTENT, content))


def image_value(tag: str, png: bytes, width: int, height: int, caption: str | None) -> bytes:
    """Return an image; a caption is shown as the tag's description."""
    # Field 3 is the color space, of which 3 is RGB.
    image = integer(1, height) + integer(2, width) + integer(3, 3) + field(4, png)
    return _value(tag, field(_IMAGE, image) + _described("images", caption))


def audio_value(tag: str, wav: bytes, sample_rate: int, caption: str | None) -> bytes:
    """Return a sound; a caption is shown as the tag's description."""
    channels, frames = _wav_shape(wav)
    rate = b"\x0d" + float32(sample_rate)
    audio = rate + integer(2, channels) + integer(3, frames) + field(4, wav) + text(5, "audio/wav")
    return _value(tag, field(_AUDIO, audio) + _described("audio", caption))


def _described(plugin: str, description: str | None) -> bytes:
    """Return metadata with a description; without the plugin's name TensorBoard warns about the tag."""
    return field(_METADATA, field(1, text(1, plugin)) + text(3, description)) if description else b""


def _wav_shape(wav: bytes) -> tuple[int, int]:
    """Return channels and frames as the WAV's header says; TensorBoard plays the file whatever stands here."""
    try:
        with wave.open(io.BytesIO(wav)) as sound:
            return sound.getnchannels(), sound.getnframes()
    except (wave.Error, EOFError):
        return 1, 0
