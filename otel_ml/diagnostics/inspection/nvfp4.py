"""What NVFP4 would make of a tensor: four bits an element, a scale of eight for 16 of them, simulated on any device.

The scheme is that of NVIDIA 2025, “Pretraining Large Language Models with NVFP4”, appendix C: elements are E2M1, each
block of 16 has a scale in E4M3, and one scale of the whole tensor in FP32 brings the blocks' scales into its range.
"""

from __future__ import annotations

from typing import Any

from otel_ml.diagnostics.inspection.fp8 import FORMATS, Fp8State
from otel_ml.diagnostics.tensor_statistics.kernel_jobs import Job

__all__ = ["E2M1_LARGEST", "NVFP4", "NVFP4_JOB", "nvfp4_state_of"]

NVFP4 = "nvfp4"
E2M1_LARGEST = 6.0
_BLOCK = 16

NVFP4_JOB = Job("round_fours", width=_BLOCK)
"""What a kernel does to find the same as `nvfp4_state_of`."""


def nvfp4_state_of(tensor: Any) -> Fp8State | None:
    """Return what rounding a tensor to NVFP4 does, or None where it has no elements; nothing waits for the device.

    `scale_inv_min` and `scale_inv_max` are of the factors by which a block's elements are multiplied when they are
    read: its own scale times that of the tensor.

    Args:
        tensor: of any shape; blocks are taken along its last dimension, the last one of a row may be shorter.

    Examples:
        With 6 as the largest element all scales are 1, and elements go to 0, 0.5, 1, 1.5, 2, 3, 4 or 6:

        >>> import torch
        >>> state = nvfp4_state_of(torch.tensor([6.0, 5.0, 2.5, 0.25, -0.2, 0.75]))
        >>> int(state.underflows), round(float(state.squared_error), 4)  # 0² + 1² + 0.5² + 0.25² + 0.2² + 0.25²
        (2, 1.415)
    """
    import torch

    if tensor.numel() == 0:
        return None
    values = tensor.detach().float()
    length = values.shape[-1] if values.dim() else 1
    rows = values.reshape(-1, length)
    # Rows × blocks × 16; zeros that fill up a row lose nothing by rounding, and `count` is without them.
    blocks = torch.nn.functional.pad(rows, (0, -length % _BLOCK)).reshape(rows.shape[0], -1, _BLOCK)
    largest = blocks.abs().amax(dim=-1, keepdim=True)
    amax = largest.max()
    ones = torch.ones_like(amax)
    # Takes the largest block's scale to 448, the largest of E4M3, in which each block's own is stored.
    of_tensor = torch.where(amax > 0, E2M1_LARGEST * FORMATS["e4m3"] / amax, ones)
    stored = (largest / E2M1_LARGEST * of_tensor).clamp(max=FORMATS["e4m3"]).to(torch.float8_e4m3fn).float()
    inverse = stored / of_tensor  # 0 where a block is too small beside the tensor: it is read as zeros
    scaled = torch.where(inverse > 0, blocks / inverse, torch.zeros_like(blocks))
    rounded = _e2m1(scaled)
    lost = (rounded * inverse - blocks).square()
    held = torch.where(largest > 0, inverse, inverse.max())  # a block of zeros says nothing about scales
    return Fp8State(
        count=values.numel(),
        underflows=((rounded == 0) & (blocks != 0)).sum(),
        overflows=(scaled.abs() > E2M1_LARGEST).sum(),
        squared_error=lost.sum(),
        scale_inv_min=held.min(),
        scale_inv_max=held.max(),
    )


def _e2m1(values: Any) -> Any:
    """Round to the nearest of 0, 0.5, 1, 1.5, 2, 3, 4, 6, ties to the even mantissa; what is larger becomes 6."""
    import torch

    absolute = values.abs()
    step = torch.where(absolute < 2.0, 0.5, torch.where(absolute < 4.0, 1.0, 2.0))
    return ((values / step).round() * step).clamp(-E2M1_LARGEST, E2M1_LARGEST)
