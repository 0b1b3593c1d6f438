"""Pictures in the shapes that other trackers take.

Arrays of numpy and tensors of torch, each with its own operations: a tensor on a device stays there, and nothing waits
for it.
"""

from __future__ import annotations

import math
from typing import Any

from otel_ml.compat.tracking.as_array import as_array as on_host

__all__ = ["as_array", "as_pillow", "film_strip", "grid", "in_range", "ordered", "rescaled"]

FRAMES = 16


def as_array(given: Any) -> Any:
    """Return a tensor without its graph, and anything else as a numpy array."""
    if hasattr(given, "detach"):
        return given.detach()
    import numpy as np

    return np.asarray(given)


def as_pillow(picture: Any) -> Any:
    """Return an array, channels first or last, floats of 0-1 or bytes, as a picture of the package Pillow."""
    import numpy as np
    from PIL import Image

    array = np.asarray(picture)
    # A picture three pixels wide could be meant either way: then the channels are last, as in Pillow.
    if array.ndim == 3 and array.shape[0] in {1, 3, 4} and array.shape[-1] not in {1, 3, 4}:
        array = array.transpose(1, 2, 0)
    if array.ndim == 3 and array.shape[-1] == 1:
        array = array[..., 0]
    if array.dtype != np.uint8:
        array = (np.clip(np.nan_to_num(array.astype(float)), 0, 1) * 255).astype(np.uint8)
    return Image.fromarray(array)


def in_range(data: Any) -> Any:
    """Return floats of 0-255 as bytes: the others take both scales, and ours are 0-1."""
    import numpy as np

    # One value above 1 is enough: nothing else tells which of the two scales is meant.
    if isinstance(data, np.ndarray) and np.issubdtype(data.dtype, np.floating) and data.size and np.nanmax(data) > 1:
        return np.clip(np.nan_to_num(data), 0, 255).astype(np.uint8)
    return data


def rescaled(data: Any) -> Any:
    """Return numbers as bytes as W&B does: of a picture from 0 to 1, from -1 to 1, else from 0 to 255.

    A tensor on a device stays as it is: its range would have to be waited for.
    """
    import numpy as np

    if getattr(getattr(data, "device", None), "type", "cpu") != "cpu":
        return data
    array = on_host(data) if hasattr(data, "detach") else data
    if not isinstance(array, np.ndarray) or not array.size or array.dtype.kind not in "iuf":
        return data
    numbers = np.nan_to_num(array.astype(float))
    low, high = numbers.min(), numbers.max()
    # W&B 0.31 expects 0 to 255, and cuts floats to whole numbers: a picture from 0 to 1 would be black.
    if high <= 1 and low >= -1:
        numbers = (numbers if low >= 0 else (numbers + 1) / 2) * 255
    return numbers.clip(0, 255).astype(np.uint8)


def ordered(given: Any, dimensions: str, wanted: str) -> Any:
    """Return an array with its dimensions, such as `CHW`, in the wanted order; one that it has not has the length 1.

    Examples:
        >>> import numpy as np
        >>> ordered(np.zeros((3, 4, 6)), "CHW", "HWC").shape, ordered(np.zeros((4, 6)), "HW", "HWC").shape
        ((4, 6, 3), (4, 6, 1))

    Raises:
        ValueError: it has more or fewer dimensions than can be meant.
    """
    array = as_array(given)
    # A picture that has another number of dimensions than its letters say is taken by what is usual for that number.
    has = dimensions.upper() if len(dimensions) == array.ndim else {2: "HW", 3: "CHW"}.get(array.ndim, "NCHW")
    if len(has) != array.ndim:
        raise ValueError(f"an array of {array.ndim} dimensions cannot be {dimensions}")
    for letter in wanted:
        if letter not in has:
            array, has = array[..., None], has + letter
    return _moved(array, [has.index(letter) for letter in wanted])


def film_strip(frames: Any) -> tuple[Any, int]:
    """Return up to 16 frames (time, height, width, channel) side by side, and how many they are."""
    # Every n-th frame, with n rounded up, so that there are at most FRAMES: of 40 frames every third, which are 14.
    chosen = frames[:: max(1, -(-len(frames) // FRAMES))]
    count, height, width, channels = chosen.shape
    return _moved(chosen, [1, 0, 2, 3]).reshape(height, count * width, channels), count


def grid(pictures: Any) -> Any:
    """Return pictures (n, height, width, channel) as one, in about as many rows as columns."""
    count, height, width, channels = pictures.shape
    columns = math.ceil(math.sqrt(count))
    rows = -(-count // columns)
    cells = _zeros_like(pictures, (rows * columns, height, width, channels))
    cells[:count] = pictures
    # (row, column, height, …) → (row, height, column, …), so that reshape() joins the pixel rows of pictures beside
    # each other.
    laid = _moved(cells.reshape(rows, columns, height, width, channels), [0, 2, 1, 3, 4])
    return laid.reshape(rows * height, columns * width, channels)


def _zeros_like(array: Any, shape: tuple[int, ...]) -> Any:
    if hasattr(array, "new_zeros"):
        return array.new_zeros(shape)
    import numpy as np

    return np.zeros(shape, array.dtype)


def _moved(array: Any, order: list[int]) -> Any:
    return array.permute(*order) if hasattr(array, "permute") else array.transpose(*order)
