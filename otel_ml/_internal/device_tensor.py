"""Values that are still being computed on a device: the caller never waits for them, the background thread reads them.

torch is never imported here; it is used where the user's program has imported it.
"""

from __future__ import annotations

import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable
from itertools import chain
from typing import Any

from otel_ml._internal.error_reporting import reporter
from otel_ml._internal.run_scope import dropped_of

__all__ = [
    "BeingCapturedError",
    "Deferred",
    "DeviceArray",
    "DeviceTensor",
    "Weighted",
    "copied_tensor",
    "is_on_device",
    "is_weight",
    "weighted",
]


def is_on_device(value: Any) -> bool:
    """Whether to read an array would wait for a device; of one of JAX its devices are asked, not its value."""
    try:
        devices = getattr(value, "devices", None)
        if callable(devices):
            return any(device.platform != "cpu" for device in devices())
        # torch's device has a type; that of a numpy array, from numpy 2 on, is the text "cpu", which has none.
        return getattr(getattr(value, "device", None), "type", "cpu") != "cpu"
    except Exception:  # noqa: BLE001 (one that JAX is tracing; a class of the program's)
        return False


class BeingCapturedError(ValueError):
    """The current stream is being captured into a graph: what is launched now is done at each replay, not now."""

    def __init__(self) -> None:
        super().__init__("is recorded while a CUDA graph is captured; record it outside of the captured region")


class Deferred(ABC):
    """A value that will be there later."""

    __slots__ = ()

    @abstractmethod
    def ready(self) -> bool:
        """Whether `read()` would return at once."""

    @abstractmethod
    def read(self) -> list[Any]:
        """Return the values, each one record."""

    @property
    def size(self) -> int:
        """How many records are lost with it."""
        return 1

    def unlaunched(self) -> Iterable[Any]:
        """Return what is still to be copied on its device, with the rest of the call (`non_blocking_copy.launch()`)."""
        return ()

    def records(self, series: Any, step: Any, time_ns: int) -> Iterable[Any]:
        """Return what stands in the buffer for it, once it is ready."""
        values = self.read()
        return (series, step, values, time_ns) if values else ()


class DeviceTensor(Deferred):
    """A copy of a tensor that is on neither a CPU nor CUDA, with the event that says when it is done."""

    __slots__ = ("_copy", "_event")

    def __init__(self, copy: Any, event: Any) -> None:
        self._copy = copy
        self._event = event

    def ready(self) -> bool:
        # Without an event nobody can ask: `read()`, on the background thread, waits for the device then.
        return self._event is None or bool(self._event.query())

    def read(self) -> list[float]:
        return [float(item) for item in self._copy.reshape(-1).tolist()]


class DeviceArray(Deferred):
    """A JAX array: immutable, so it is kept as it is and asked whether it has been computed."""

    __slots__ = ("_array",)

    def __init__(self, array: Any) -> None:
        self._array = array

    def ready(self) -> bool:
        return bool(self._array.is_ready())

    def read(self) -> list[float]:
        return [float(item) for item in self._array.reshape(-1).tolist()]


class Weighted(Deferred):
    """Values with weights of which at least one side is deferred."""

    __slots__ = ("_values", "_weights")

    def __init__(self, values: float | list[float] | Deferred, weights: float | list[float] | Deferred) -> None:
        self._values = values
        self._weights = weights

    @property
    def sides(self) -> tuple[float | list[float] | Deferred, float | list[float] | Deferred]:
        """The values, and the weights."""
        return self._values, self._weights

    @property
    def size(self) -> int:
        return max(side.size for side in (self._values, self._weights) if isinstance(side, Deferred))

    def unlaunched(self) -> Iterable[Any]:
        sides = [side.unlaunched() for side in (self._values, self._weights) if isinstance(side, Deferred)]
        return chain.from_iterable(sides)

    def ready(self) -> bool:
        return all(side.ready() for side in (self._values, self._weights) if isinstance(side, Deferred))

    def read(self) -> list[tuple[float, float]]:
        return _pairs(_now(self._values), _now(self._weights))[0]

    def records(self, series: Any, step: Any, time_ns: int) -> Iterable[Any]:
        pairs = weighted(series, step, _now(self._values), _now(self._weights))
        return (series, step, pairs, time_ns) if pairs else ()


def weighted(series: Any, step: Any, values: list[float], weights: list[float]) -> list[tuple[float, float]]:
    """Return values of a series with their weights; those whose weight is none are counted, and it is said."""
    pairs, wrong = _pairs(values, weights)
    if wrong:
        dropped_of(step)["bad_weight"] += len(values) - len(pairs)
        name = series.definition.name
        # Not by `reporter.drop()`, which raises in strict mode: the call that was wrong is long over.
        reporter.say(
            "bad-weight",
            f"Metric {name!r:.120}: expected weights that are finite numbers from 0 on, one or as many as values, got "
            f"{wrong}.",
            kind=f"bad_weight of {name} on a device",
            is_loss=True,
        )
    return pairs


def _pairs(values: list[float], weights: list[float]) -> tuple[list[tuple[float, float]], str]:
    """Return the values that have a weight, with it, and what is wrong with the others."""
    if len(weights) == 1:
        weights = weights * len(values)
    if len(weights) != len(values):
        # Which weight is whose is not known.
        return [], f"{len(weights)} weights for {len(values)} values"
    bad = [weight for weight in weights if not is_weight(weight)]
    pairs = [pair for pair in zip(values, weights, strict=True) if is_weight(pair[1])]
    return pairs, f"weight {bad[0]!r}, which is not a finite number from 0 on" if bad else ""


def is_weight(number: float) -> bool:
    """Whether a value may have this weight (docs/protocol.md §2.4)."""
    return number >= 0 and math.isfinite(number)


def _now(side: float | list[float] | Deferred) -> list[float]:
    if isinstance(side, Deferred):
        return side.read()
    return side if isinstance(side, list) else [side]


def copied_tensor(tensor: Any) -> tuple[Any, Any]:
    """Return a copy of a tensor, made on its device's current stream, and the event of its end.

    The event is None where the device has none.
    """
    kind = tensor.device.type
    event_type = getattr(getattr(sys.modules["torch"], kind, None), "Event", None)
    copy = tensor.detach().clone()
    if event_type is None:
        return copy, None
    event = event_type()
    # On the stream of the copy, behind it: when the event is done, so is the copy.
    event.record()
    return copy, event
