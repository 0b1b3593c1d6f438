"""Copies of arrays and tensors that the caller may change or free at once; read later, in the background."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from otel_ml._internal.device import copied_tensor, reading_from

if TYPE_CHECKING:
    import numpy as np

__all__ = ["ArrayLike", "copied"]

ArrayLike = Any
"""numpy arrays, tensors, nested lists: what `numpy.asarray` takes, and torch tensors on any device."""


def copied(value: ArrayLike) -> Callable[[], np.ndarray[Any, Any]]:
    """Copy `value` now, and return how to get it as a numpy array.

    A tensor on a device is cloned on the caller's stream; only the background waits for it.
    """
    if hasattr(value, "detach") and hasattr(value, "device"):
        return _copied_tensor(value)
    import numpy as np

    array = np.array(value)
    return lambda: array


def _copied_tensor(tensor: Any) -> Callable[[], np.ndarray[Any, Any]]:
    if tensor.device.type == "cpu":
        clone = tensor.detach().clone()
        return lambda: _as_numpy(clone)
    copy, copy_is_done = copied_tensor(tensor)

    def read() -> np.ndarray[Any, Any]:
        if copy_is_done is not None:
            copy_is_done.synchronize()  # the background thread waits; the caller is long gone
        if copy.device.type != "cuda":
            return _as_numpy(copy)
        with reading_from(copy.device):
            return _as_numpy(copy)

    return read


def _as_numpy(tensor: Any) -> np.ndarray[Any, Any]:
    if str(tensor.dtype) == "torch.bfloat16":  # numpy has no such type
        tensor = tensor.float()
    array: np.ndarray[Any, Any] = tensor.cpu().numpy()
    return array
