"""What a user may record: numbers, 0-d arrays and tensors, 1-d sequences of them. All else is reported and counted."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import compress
from typing import Any

from otel_ml._internal.device_tensor import Deferred, DeviceArray, DeviceTensor, Weighted, copied_tensor, is_weight
from otel_ml._internal.devices.non_blocking_copy import Staged
from otel_ml._internal.safe_repr import safe_repr, text_of

__all__ = [
    "READERS",
    "BeingTracedError",
    "Recordable",
    "UnrecordableError",
    "plain_numbers",
    "record_value",
    "weighted_value",
    "which_are_cuda_scalars",
]

Recordable = float | list[float] | list[tuple[float, float]] | tuple[float, float] | Deferred
"""What stands in the buffer: one record, several, with weights, or later."""


_PLAIN = frozenset({float, int})
_ONLY_FLOATS = frozenset({float})


_TOO_LARGE = 2**1023
"""From here on it is looked at whether a whole number has a float."""


class UnrecordableError(Exception):
    """A value or weight cannot be recorded; `reason` is what it is counted under."""

    def __init__(self, reason: str, text: str) -> None:
        self.reason = reason
        super().__init__(text)


class BeingTracedError(Exception):
    """A tensor has no value: the program is traced into a graph, and what computes the values runs later."""


def record_value(value: object) -> float | list[float] | Deferred:
    """Return `value` as it goes into the buffer; what is in CPU memory is copied now.

    Raises:
        UnrecordableError: for what is neither a number nor a 1-d sequence of numbers.
        BeingTracedError: for a tensor that stands for those of a graph.
    """
    kind = type(value)
    # By exact type, and worked out once for each: `isinstance()` with an ABC runs code of Python.
    reader = READERS.get(kind)
    if reader is None:
        reader = READERS[kind] = _reader_of(kind)
    try:
        return reader(value)
    except (UnrecordableError, BeingTracedError):
        raise
    except Exception as error:
        raise UnrecordableError("bad_value", f"{_shown(value)}, which {text_of(error)}") from error


def plain_numbers(values: Collection[object]) -> list[float] | None:
    """Return what `record_value()` does of each, if all are known to be numbers in CPU memory; else None."""
    for kind in {*map(type, values)}:
        if READERS.get(kind) is not float:
            return None
    try:
        # Not by map(), which takes a StopIteration of one of them for its own end.
        return [float(value) for value in values]  # type: ignore[arg-type] # float() reads each of these
    except Exception:  # noqa: BLE001 - one such as 10**400 is not a float; which one it is, is found out one by one
        return None


def weighted_value(value: object, weight: object) -> Recordable:
    """Return `value` with `weight`, or with as many weights as it has elements.

    Raises:
        UnrecordableError: also for a weight that is negative or not finite.
    """
    # The comparison is false of NaN and infinity, too.
    if type(value) is float and type(weight) in _PLAIN and 0 <= weight < _TOO_LARGE:  # type: ignore[operator]
        return value, float(weight)  # type: ignore[arg-type]
    values = record_value(value)
    try:
        weights = record_value(weight)
    except UnrecordableError as error:
        raise UnrecordableError("bad_weight", f"weight {error}") from None
    every = weights if isinstance(weights, list) else [] if isinstance(weights, Deferred) else [weights]
    if not all(map(is_weight, every)):
        raise UnrecordableError("bad_weight", f"weight {safe_repr(weight)}, which is not a finite number from 0 on")
    if isinstance(values, Deferred) or isinstance(weights, Deferred):
        return Weighted(values, weights)
    if not isinstance(values, list):
        values = [values]
    if len(every) not in {1, len(values)}:
        raise UnrecordableError("bad_weight", f"{len(every)} weights for {len(values)} values")
    pairs = list(zip(values, every * len(values) if len(every) == 1 else every, strict=True))
    # In the buffer one record is a tuple (value, weight), several are a list of them.
    return pairs[0] if len(pairs) == 1 else pairs


def _shown(value: object) -> str:
    kind = type(value)
    try:
        shape = getattr(value, "shape", None)
        if shape is not None:
            return f"a {kind.__name__} of shape {tuple(shape)!r:.60}"
    except Exception:  # noqa: BLE001 (of a class of the program's)
        return f"a {kind.__name__}"
    # The text of a value differs from rank to rank; its type says what is wrong, once for the job.
    return f"{value!r:.40} ({kind.__name__})" if value is None or isinstance(value, str) else f"a {kind.__name__}"


def _refuse(value: object) -> float:
    raise UnrecordableError("bad_value", f"{_shown(value)}; {_advice(value)}")


def _advice(value: object) -> str:
    if value is None:
        return "leave the name out where there is no value"
    if isinstance(value, Mapping):
        return "record its entries under names of their own"
    return "convert it with float(), or use log_text()" if isinstance(value, str) else "convert it with float()"


def _refuse_shape(value: object) -> float:
    raise UnrecordableError("bad_value", f"{_shown(value)}; reduce it first, or use log_histogram() or log_image()")


def _sequence(value: Sequence[object]) -> list[float]:
    if {*map(type, value)} == _ONLY_FLOATS:
        return [*value]  # type: ignore[list-item]
    out = []
    for item in value:
        number = record_value(item)
        # A sequence of sequences, or of values on a device, is none of numbers.
        if type(number) is not float:
            _refuse_shape(value)
        out.append(number)
    return out  # type: ignore[return-value]


def _array(value: Any) -> float | list[float]:
    # numpy's letters: float, int, unsigned int, bool.
    if value.dtype.kind not in "fiub":
        raise UnrecordableError("bad_value", f"an array of {value.dtype}")
    if value.ndim == 0:
        return float(value)
    return [float(item) for item in value.tolist()] if value.ndim == 1 else _refuse_shape(value)


def _array_like(value: Any) -> float | list[float]:
    import numpy as np

    return _array(np.asarray(value))


def _asynchronous(value: Any) -> Deferred:
    if value.ndim > 1:
        _refuse_shape(value)
    return DeviceArray(value)


def _tensor(value: Any) -> float | list[float] | Deferred:
    if value.dim() > 1:
        return _refuse_shape(value)
    if value.is_complex():
        raise UnrecordableError("bad_value", f"a tensor of {value.dtype}")
    if value.device.type == "cpu":
        # Not through numpy, which has no bfloat16, and need not be installed.
        numbers = value.tolist()
        return [float(item) for item in numbers] if isinstance(numbers, list) else float(numbers)
    return _on_device(value)


def _on_device(value: Any) -> list[float] | Deferred:
    if value.device.type == "meta":
        raise UnrecordableError("bad_value", "a tensor without data (device meta)")
    if value.layout is not sys.modules["torch"].strided or value.is_quantized:
        raise UnrecordableError("bad_value", f"a tensor of {value.dtype} in the layout {value.layout}")
    if value.numel() == 0:
        return []
    return Staged(value) if value.device.type == "cuda" else DeviceTensor(*copied_tensor(value))


def _traced(value: object) -> float:
    raise BeingTracedError(f"{_shown(value)} is traced")


def which_are_cuda_scalars(values: Sequence[Any]) -> tuple[bool, ...] | None:
    """Return of each value whether it is a tensor without dimensions on a CUDA device.

    Returns:
        None where no value is, where they are on several devices, and where another tensor is among them.
    """
    are_tensors = tuple([READERS.get(kind) is _tensor for kind in map(type, values)])
    tensors = [*compress(values, are_tensors)]
    if not tensors or tensors[0].device.type != "cuda":
        return None
    if {tensor.dim() for tensor in tensors} != {0} or len({tensor.device for tensor in tensors}) > 1:
        return None
    return are_tensors


def _sharded(value: Any) -> float | list[float] | Deferred:
    """Read this rank's part of a DTensor, which is the value itself only where it is replicated."""
    if not all(placement.is_replicate() for placement in value.placements):
        # full_tensor() is a collective: it would hang where another rank does not record.
        raise UnrecordableError("bad_value", "a DTensor that is not replicated; pass its full_tensor()")
    return _tensor(value.to_local())


def _reader_of(kind: type) -> Callable[[Any], float | list[float] | Deferred]:
    for module, type_name, reader in _ARRAYS:
        known = getattr(sys.modules.get(module), type_name, None)
        if isinstance(known, type) and issubclass(kind, known):
            # Of the tensors, a DTensor is the one that has this method.
            return _sharded if reader is _tensor and hasattr(kind, "to_local") else reader
    return next((reader for accepts, reader in _OTHERS if accepts(kind)), _refuse)


# In this order: a FakeTensor is a Tensor, and a complexfloating a number.
_ARRAYS: tuple[tuple[str, str, Callable[[Any], float | list[float] | Deferred]], ...] = (
    ("torch._subclasses.fake_tensor", "FakeTensor", _traced),
    ("torch._subclasses.functional_tensor", "FunctionalTensor", _traced),
    ("torch", "Tensor", _tensor),
    ("numpy", "complexfloating", _refuse),
    ("numpy", "number", float),
    ("numpy", "bool", float),
    ("numpy", "bool_", float),
    ("numpy", "ndarray", _array),
)
"""Looked up among the modules that are loaded: a value of a type cannot exist before its module."""


def _as_it_is(value: Deferred) -> Deferred:
    return value


_OTHERS: tuple[tuple[Callable[[type], bool], Callable[[Any], float | list[float] | Deferred]], ...] = (
    (lambda kind: issubclass(kind, Deferred), _as_it_is),  # the time of a device, under several names
    (lambda kind: issubclass(kind, (float, int)), float),
    (lambda kind: issubclass(kind, (str, bytes, bytearray, Mapping)), _refuse),
    (lambda kind: issubclass(kind, Sequence) or kind.__module__ in {"array", "collections"}, _sequence),
    (lambda kind: hasattr(kind, "is_ready") and hasattr(kind, "__array__"), _asynchronous),  # jax.Array
    (lambda kind: hasattr(kind, "__array__"), _array_like),
    (lambda kind: hasattr(kind, "__float__"), float),
)

READERS: dict[type, Callable[[Any], float | list[float] | Deferred]] = {float: float, int: float, bool: float}
