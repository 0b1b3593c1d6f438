"""What is shown beside curves: bodies of text, tables, images, audio, histograms, made in the background."""

from __future__ import annotations

import io
import itertools
import math
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from otel_ml._internal.devices.arrays import ArrayLike, copied
from otel_ml._internal.error_reporting import reporter
from otel_ml._internal.events.config_values import config_value
from otel_ml._internal.safe_repr import exact_text
from otel_ml.quantities import size
from otel_ml.variable import size_text
from otel_ml.wire.png import CHANNELS, encode_png, png_size

__all__ = ["Made", "audio", "figure", "histogram", "image", "table", "text"]

Made = tuple[object, Mapping[str, object]]
"""Body and attributes of an event."""

MAX_MEDIA_BYTES = 16 * 2**20
"""A larger picture or sound belongs into an artifact: receivers refuse requests of 64 MiB."""

_UNCHANGING = frozenset({str, int, float, bool, type(None)})
"""Types of cells that need no copy: exact ones, for a subclass may have attributes that change."""


def text(value: object) -> Callable[[], Made]:
    """Take a text, or what a list or dictionary has, now, and make the text of it later: it may wait for a device."""
    # A copy of one level costs little, and covers what a loop appends to.
    taken = value.copy() if type(value) in (list, dict, set) else value  # type: ignore[attr-defined]
    return lambda: (exact_text(taken), {})


def image(value: ArrayLike, caption: str | None) -> Callable[[], Made]:
    """Copy an image now, encode it later. PNG bytes, arrays, tensors, PIL images."""
    shown = _caption(caption)
    if isinstance(value, (bytes, bytearray)):
        content = bytes(value)
        return lambda: _png(content, shown)
    read = copied(value)

    def make() -> Made:
        pixels = _pixels(read())
        height, width, channels = pixels.shape
        content = encode_png(pixels.tobytes(), width, height, channels)
        return _limited(content), {"ml.width": width, "ml.height": height, **shown}

    return make


def figure(value: Any, caption: str | None) -> Callable[[], Made]:
    """Draw a matplotlib figure, here and now: a figure may be changed or closed right after the call."""
    content = io.BytesIO()
    value.savefig(content, format="png", bbox_inches="tight")
    drawn, shown = content.getvalue(), _caption(caption)
    return lambda: _png(drawn, shown)


def audio(value: ArrayLike, sample_rate: int, caption: str | None) -> Callable[[], Made]:
    """Copy a sound now, make a WAV (PCM 16) of it later. Shape (samples,) or (samples, channels); or WAV bytes."""
    about = {"ml.sample_rate": sample_rate, **_caption(caption)}
    if isinstance(value, (bytes, bytearray)):
        content = bytes(value)
        return lambda: (_limited(_checked_wav(content)), about)
    read = copied(value)
    return lambda: (_limited(_wav(read(), sample_rate)), about)


def histogram(name: str, values: ArrayLike, bins: int, edges: ArrayLike | None) -> Callable[[], Made]:
    """Copy values now and count them later; with `edges`, `values` are the counts."""
    read = copied(values)
    read_edges = None if edges is None else copied(edges)
    return lambda: (_given_counts(read(), read_edges()) if read_edges else _counted(name, read(), bins), {})


def table(data: Any, columns: Sequence[str] | None) -> Callable[[], Made]:
    """Copy a table now. Rows, dictionaries, a dictionary of columns, or a pandas DataFrame.

    Raises:
        ValueError: rows are not as long as there are columns.
    """
    names, rows = _table(data, columns)
    # What may change until the background thread comes to it is read here; to look at all cells would take too long.
    rows = [[cell if type(cell) in _UNCHANGING else config_value(cell) for cell in row] for row in rows]
    for number, row in enumerate(rows):
        if len(row) != len(names):
            raise ValueError(f"row {number} of a table has {len(row)} cells. Expected {len(names)}: {names!r}.")
    # A cell that is left as it was has one of the types in `_UNCHANGING`; for these `config_value` cuts long texts.
    return lambda: ({"columns": names, "rows": [[config_value(cell) for cell in row] for row in rows]}, {})


def _png(content: bytes, shown: Mapping[str, object]) -> Made:
    width, height = png_size(content)
    return _limited(content), {"ml.width": width, "ml.height": height, **shown}


def _pixels(array: Any) -> Any:
    """Return `array` as uint8 of shape (height, width, channels).

    Accepted: (h, w), (h, w, c), (c, h, w) with 1–4 channels; integers 0–255, floats 0–1, booleans.

    Raises:
        ValueError: saying which shape was given and which are expected.
    """
    import numpy as np

    if array.ndim == 2:
        array = array[:, :, None]
    # Where both ends may be channels, as of (3, height, 3), the last axis is.
    elif array.ndim == 3 and array.shape[2] not in CHANNELS and array.shape[0] in CHANNELS:
        array = np.moveaxis(array, 0, 2)
    if array.ndim != 3 or array.shape[2] not in CHANNELS or 0 in array.shape:
        raise ValueError(
            f"an image of shape {array.shape} was given. "
            "Expected (height, width), (height, width, channels) or (channels, height, width), 1 to 4 channels."
        )
    if array.dtype == np.bool_:
        array = array.astype(np.uint8) * 255
    elif np.issubdtype(array.dtype, np.floating):
        array = np.rint(np.clip(np.nan_to_num(array), 0.0, 1.0) * 255)
    elif not np.issubdtype(array.dtype, np.integer):
        raise ValueError(f"an image of type {array.dtype} was given. Expected integers 0–255, floats 0–1 or booleans.")
    return np.ascontiguousarray(np.clip(array, 0, 255).astype(np.uint8))


def _caption(given: str | None) -> Mapping[str, object]:
    return {} if given is None else {"ml.caption": exact_text(given)}


def _limited(content: bytes) -> bytes:
    if len(content) > MAX_MEDIA_BYTES:
        raise ValueError(
            f"{size(len(content))} were given. Expected at most {size_text(MAX_MEDIA_BYTES)}; use log_artifact() for "
            "larger."
        )
    return content


def _checked_wav(content: bytes) -> bytes:
    if content[:4] != b"RIFF" or content[8:12] != b"WAVE":
        raise ValueError(
            f"{len(content)} bytes that are not a WAV file were given. Expected an array or a WAV file's bytes."
        )
    return content


def _wav(array: Any, sample_rate: int) -> bytes:
    import numpy as np

    if array.ndim == 1:
        array = array[:, None]
    if array.ndim != 2 or not 1 <= array.shape[1] <= 16:
        raise ValueError(f"audio of shape {array.shape} was given. Expected (samples,) or (samples, channels).")
    if np.issubdtype(array.dtype, np.floating):
        array = np.rint(np.clip(np.nan_to_num(array), -1.0, 1.0) * 32767)
    data = np.ascontiguousarray(np.clip(array, -32768, 32767).astype("<i2")).tobytes()
    channels = array.shape[1]
    # PCM, channels, frames/s, bytes/s, bytes/frame, bits a sample
    head = struct.pack("<HHIIHH", 1, channels, sample_rate, sample_rate * channels * 2, channels * 2, 16)
    # Samples of 16 bits are an even number of bytes, so no chunk needs one more to end at an even place.
    body = b"WAVEfmt " + struct.pack("<I", len(head)) + head + b"data" + struct.pack("<I", len(data)) + data
    return b"RIFF" + struct.pack("<I", len(body)) + body


def _counted(name: str, array: Any, bins: int) -> object:
    import numpy as np

    values = np.asarray(array, np.float64).ravel()
    finite = values[np.isfinite(values)]
    if len(values) and not len(finite):
        raise ValueError(f"log_histogram(): {name!r}: {len(values)} values were given, and none of them is finite.")
    if left_out := len(values) - len(finite):
        reporter.dropped["nonfinite"] += left_out
        reporter.say(
            "nonfinite",
            f"log_histogram(): {name!r}: {left_out} of {len(values)} values are NaN or infinite, and left out.",
            kind=f"nonfinite {name}",
        )
    counts, edges = np.histogram(finite, bins=bins)
    return {"edges": edges.tolist(), "counts": counts.astype(np.float64).tolist()}


def _given_counts(counts: Any, edges: Any) -> object:
    import numpy as np

    edge_list = np.asarray(edges, np.float64).ravel().tolist()
    count_list = np.asarray(counts, np.float64).ravel().tolist()
    ascending = all(low < high for low, high in itertools.pairwise(edge_list))
    finite = all(map(math.isfinite, (*edge_list, *count_list)))
    if len(edge_list) != len(count_list) + 1 or not ascending or not finite:
        raise ValueError(
            f"{len(count_list)} counts and {len(edge_list)} edges were given. "
            "Expected one more edge than counts, ascending, and all of them finite."
        )
    return {"edges": edge_list, "counts": count_list}


def _table(data: Any, columns: Sequence[str] | None) -> tuple[list[str], list[Any]]:
    if hasattr(data, "itertuples") and hasattr(data, "columns"):  # pandas
        return [exact_text(name) for name in data.columns], list(data.itertuples(index=False, name=None))
    if isinstance(data, Mapping):
        names = [exact_text(name) for name in (columns or data)]
        lengths = {len(data[name]) for name in (columns or data)}
        if len(lengths) > 1:
            raise ValueError(f"columns of lengths {sorted(lengths)} were given. Expected equal ones.")
        return names, list(zip(*(data[name] for name in (columns or data)), strict=True))
    rows = list(data)
    if rows and all(isinstance(row, Mapping) for row in rows):
        # All keys of all rows, in the order in which they first appear: rows may lack some.
        names = list(columns or dict.fromkeys(key for row in rows for key in row))
        return [exact_text(name) for name in names], [[row.get(name) for name in names] for row in rows]
    if columns is None:
        raise ValueError(
            "a table of rows without columns was given. Expected columns=[…], dictionaries, or a DataFrame."
        )
    return [exact_text(name) for name in columns], rows
