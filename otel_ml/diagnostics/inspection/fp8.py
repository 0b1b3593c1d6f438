"""What FP8 would make of a tensor: rounded with torch's own float8 types, on any device, whatever training uses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from otel_ml.diagnostics.inspection.statistics import Value
from otel_ml.diagnostics.tensor_statistics.kernel_jobs import Job

__all__ = [
    "FORMATS",
    "FP8_STATISTICS",
    "RECIPES",
    "DelayedScales",
    "Fp8State",
    "format_for",
    "fp8_job_for",
    "fp8_state_of",
]

FP8_STATISTICS = ("underflows%", "overflows%", "scale_inv_min", "scale_inv_max", "mse")
"""Per cent of all elements that become 0 without being it, or are larger than the format has; scales; squared error."""

FORMATS = {"e4m3": 448.0, "e5m2": 57344.0}
"""Largest number of each format (Micikevicius et al. 2022, “FP8 Formats for Deep Learning”, table 1)."""

RECIPES = ("fp8_current_scaling", "fp8_delayed_scaling", "mxfp8", "fp8_block_scaling")
"""One scale a tensor from its own maximum; the same from earlier steps; one a block of 32; one a block of 128."""

_SHAPES = {"e4m3": (3, 127 - 6), "e5m2": (2, 127 - 14)}
"""Bits of the mantissa, and the exponent of the smallest normal number as 32 bits write it."""

_BLOCKS = {"mxfp8": 32, "fp8_block_scaling": 128}
_TOLERANCE = 1 + 2**-20
"""Of the largest number: what is scaled to it exactly may come out an ulp above, and is rounded to it."""

_LARGEST_SCALE = 2.0**127
"""The largest scale of a block in MX formats; any is finite in 32 bits, however small the tensor."""

_HISTORY = 16
"""Steps of maxima that delayed scaling looks back on: short enough to follow training."""


def format_for(wanted: str, tensor: str) -> str:
    """Return `e4m3` or `e5m2`; `hybrid` takes the wider range for gradients."""
    if wanted != "hybrid":
        return wanted
    return "e5m2" if tensor in {"gradient", "wgrad", "dgrad"} else "e4m3"


def fp8_job_for(recipe: str, format: str) -> Job | None:  # noqa: A002
    """Return what a kernel does to find the same as `fp8_state_of`; None of a recipe that needs earlier steps."""
    if recipe == "fp8_delayed_scaling":
        return None
    # 0 where the recipe has one scale for the whole tensor.
    width = _BLOCKS.get(recipe, 0)
    return Job("round_blocks" if width else "round_whole", FORMATS[format], *_SHAPES[format], width)


class DelayedScales:
    """The maxima of a tensor in earlier steps, from which delayed scaling takes its scale."""

    def __init__(self) -> None:
        self._amax: list[Any] = []

    def scale(self, largest: float, like: Any) -> Any:
        """Return the scale for this step, on the device of `like`: 1 in the first, as long as nothing is known."""
        import torch

        if not self._amax:
            return torch.ones((), device=like.device)
        return _scale_to(largest, torch.stack(self._amax).max())

    def add(self, amax: Any) -> None:
        """Remember the maximum of this step."""
        self._amax = [*self._amax, amax][-_HISTORY:]


@dataclass(frozen=True, slots=True)
class Fp8State:
    """Sums over elements, which micro-batches and ranks add up; or rows of them, one for each of several tensors."""

    count: Any
    underflows: Any
    overflows: Any
    squared_error: Any
    scale_inv_min: Any
    scale_inv_max: Any

    def merged(self, other: Fp8State) -> Fp8State:
        """Return the state of both."""
        return Fp8State(
            self.count + other.count,
            self.underflows + other.underflows,
            self.overflows + other.overflows,
            self.squared_error + other.squared_error,
            self.scale_inv_min.minimum(other.scale_inv_min),
            self.scale_inv_max.maximum(other.scale_inv_max),
        )

    def values(self, prefix: str, stats: tuple[str, ...]) -> Iterator[tuple[str, Value]]:
        """Yield those of `stats` that begin with `prefix` and go on with one of ours."""
        # A mean of shares, weighted by elements, is the share of all elements.
        mean = ("mean",)
        found = {
            "underflows%": (100.0 * self.underflows / self.count, self.count, mean),
            "overflows%": (100.0 * self.overflows / self.count, self.count, mean),
            "mse": (self.squared_error / self.count, self.count, mean),
            "scale_inv_min": (self.scale_inv_min, None, ("min",)),
            "scale_inv_max": (self.scale_inv_max, None, ("max",)),
        }
        for name, (value, weight, reduce) in found.items():
            if f"{prefix}{name}" in stats:
                yield f"{prefix}{name}", Value(value, value, weight, reduce)


def fp8_state_of(tensor: Any, *, format: str, recipe: str, delayed: DelayedScales) -> Fp8State | None:  # noqa: A002
    """Return what rounding a tensor to FP8 does, or None where it has no elements; nothing waits for the device.

    Args:
        tensor: of any shape; blocks are taken along its last dimension.
        format: `e4m3` or `e5m2`.
        recipe: one of `RECIPES`.
        delayed: the tensor's own history, for `fp8_delayed_scaling`.
    """
    import torch

    if tensor.numel() == 0:
        return None
    largest = FORMATS[format]
    values = tensor.detach().float()
    scale = _scale(values, largest, recipe, delayed)
    scaled = values * scale
    type_ = torch.float8_e4m3fn if format == "e4m3" else torch.float8_e5m2
    rounded = scaled.clamp(-largest, largest).to(type_).float()
    # One for the tensor, or one an element where blocks have scales: extremes are the same.
    inverse = (1.0 / scale).flatten()
    return Fp8State(
        count=values.numel(),
        underflows=((rounded == 0) & (values != 0)).sum(),
        overflows=(scaled.abs() > largest * _TOLERANCE).sum(),
        squared_error=(rounded / scale - values).square().sum(),
        scale_inv_min=inverse.min(),
        scale_inv_max=inverse.max(),
    )


def _scale(values: Any, largest: float, recipe: str, delayed: DelayedScales) -> Any:
    if recipe in _BLOCKS:
        return _block_scale(values, largest, _BLOCKS[recipe])
    amax = values.abs().max()
    # `amax` of this step is not used: delayed scaling scales by the steps before.
    if recipe == "fp8_delayed_scaling":
        return delayed.scale(largest, values)
    return _scale_to(largest, amax)


def _scale_to(largest: float, amax: Any) -> Any:
    """Return what takes the maximum to the largest number of the format; 1 where there is none but 0."""
    import torch

    return torch.where(amax > 0, (largest / amax).clamp(max=_LARGEST_SCALE), torch.ones_like(amax))


def _block_scale(values: Any, largest: float, block: int) -> Any:
    """Return a power of two for each element: that of its block, rounded so that nothing overflows."""
    import torch

    length = values.shape[-1] if values.dim() else 1
    rows = values.reshape(-1, length)
    # Rows × blocks × elements of a block; zeros that fill up a row change no maximum.
    padded = torch.nn.functional.pad(rows.abs(), (0, -length % block))
    amax = padded.reshape(rows.shape[0], -1, block).amax(dim=-1, keepdim=True)
    # Rounded up: a scale that is a power of two and one step too large would make the largest overflow.
    exponent = torch.where(amax > 0, (amax / largest).log2().ceil(), torch.zeros_like(amax))
    scale = torch.exp2(-exponent).clamp(max=_LARGEST_SCALE).expand(-1, -1, block).reshape(rows.shape[0], -1)
    # Without the padding.
    return scale[:, :length].reshape(values.shape)
