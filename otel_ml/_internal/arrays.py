"""Copies of arrays and tensors that the caller may change or free at once; read later, in the background."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

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
    clone = tensor.detach().clone()
    if clone.device.type != "cuda":
        return lambda: _as_numpy(clone)
    import torch

    copy_is_done = torch.cuda.Event()
    copy_is_done.record(torch.cuda.current_stream(clone.device))

    def read() -> np.ndarray[Any, Any]:
        copy_is_done.synchronize()
        return _as_numpy(clone)

    return read


def _as_numpy(tensor: Any) -> np.ndarray[Any, Any]:
    if str(tensor.dtype) == "torch.bfloat16":  # numpy has no such type
        tensor = tensor.float()
    array: np.ndarray[Any, Any] = tensor.cpu().numpy()
    return array
