"""How many floating-point operations a device can do per second, and a model needs per token."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

__all__ = ["PEAKS", "Peak", "counted_flops", "device_name", "peak_flops", "transformer_flops"]


@dataclass(frozen=True, slots=True)
class Peak:
    """Dense peak rates of one product, without structured sparsity.

    Attributes:
        product: as its maker calls it.
        pattern: of the names that the driver gives it.
        teraflops: dtype → 10¹² operations per second; `tf32` is float32 on tensor cores.
        source: where the numbers stand. Makers print rates with sparsity; those are halved here.
    """

    product: str
    pattern: str
    teraflops: Mapping[str, float]
    source: str


def _rates(half: float, *, float8: float | None = None, tf32: float | None = None, float32: float) -> dict[str, float]:
    # Devices compute both half precisions at one rate.
    rates = {"bfloat16": half, "float16": half, "float8": float8, "tf32": tf32, "float32": float32}
    return {dtype: rate for dtype, rate in rates.items() if rate is not None}


_H100 = 'NVIDIA H100 datasheet, halved where it says "with sparsity"'
_H200 = 'NVIDIA H200 datasheet, halved where it says "with sparsity"'
_A100 = "NVIDIA A100 datasheet"

PEAKS: tuple[Peak, ...] = (
    Peak("H100 NVL", r"H100 NVL", _rates(835.5, float8=1671.0, tf32=417.5, float32=60.0), _H100),
    Peak("H100 PCIe", r"H100 PCIe", _rates(756.5, float8=1513.0, tf32=378.0, float32=51.0), _H100),
    Peak("H100 SXM", r"H100 (SXM|80GB HBM3\b)", _rates(989.5, float8=1979.0, tf32=494.5, float32=67.0), _H100),
    Peak("GH200", r"GH200", _rates(989.5, float8=1979.0, tf32=494.5, float32=67.0), "NVIDIA GH200 datasheet, halved"),
    Peak("H200 NVL", r"H200 NVL", _rates(835.5, float8=1671.0, tf32=417.5, float32=60.0), _H200),
    Peak("H200 SXM", r"H200\b", _rates(989.5, float8=1979.0, tf32=494.5, float32=67.0), _H200),
    Peak(
        "B200", r"\bB200\b", _rates(2250.0, float8=4500.0, tf32=1125.0, float32=75.0), "NVIDIA HGX B200 datasheet / 8"
    ),
    Peak("A100", r"\bA100\b", _rates(312.0, tf32=156.0, float32=19.5), _A100),
    Peak("A40", r"\bA40\b", _rates(149.7, tf32=74.8, float32=37.4), "NVIDIA A40 datasheet"),
    Peak("A10", r"\bA10\b", _rates(125.0, tf32=62.5, float32=31.2), "NVIDIA A10 datasheet"),
    Peak("L40S", r"\bL40S\b", _rates(362.05, float8=733.0, tf32=183.0, float32=91.6), "NVIDIA L40S datasheet"),
    Peak("L4", r"\bL4\b", _rates(121.0, float8=242.5, tf32=60.0, float32=30.3), "NVIDIA L4 datasheet, halved"),
    Peak("V100 SXM2", r"V100-SXM2", {"float16": 125.0, "float32": 15.7}, "NVIDIA V100 datasheet"),
    Peak("V100 PCIe", r"V100-PCIE", {"float16": 112.0, "float32": 14.0}, "NVIDIA V100 datasheet"),
    Peak("T4", r"\bT4\b", {"float16": 65.0, "float32": 8.1}, "NVIDIA T4 datasheet"),
    Peak("MI300X", r"MI300X", _rates(1307.4, float8=2614.9, tf32=653.7, float32=163.4), "AMD MI300X data sheet"),
    Peak("MI325X", r"MI325X", _rates(1307.4, float8=2614.9, tf32=653.7, float32=163.4), "AMD MI325X data sheet"),
    # One package holds two dies, and each is a device of its own to the program.
    Peak("MI250X, one die", r"MI250X", {"bfloat16": 191.5, "float16": 191.5, "float32": 23.95}, "AMD MI250X, halved"),
)
"""Products whose peak is known. What is not here has none: a guessed peak would make a guessed utilization."""


def peak_flops(device: str, dtype: str = "bfloat16") -> float | None:
    """Return the dense peak of a device in FLOP/s, or None where it is not known.

    Args:
        device: the name that the driver gives, as `torch.cuda.get_device_name()` returns it.
        dtype: `bfloat16`, `float16`, `float8`, `tf32` or `float32`; `torch.bfloat16` as text works too.

    Examples:
        >>> peak_flops("NVIDIA H100 80GB HBM3", "bfloat16")
        989500000000000.0
        >>> peak_flops("NVIDIA A10G", "bfloat16") is None
        True
        >>> peak_flops("NVIDIA H100 80GB HBM3 MIG 1g.10gb") is None
        True
    """
    if "MIG" in device:  # a slice of the device, whose share of it the name does not tell
        return None
    kind = _dtype(dtype)
    # In the order of the table: `H200 NVL` stands before `H200`, which fits it, too.
    found = next((peak for peak in PEAKS if re.search(peak.pattern, device)), None)
    rate = None if found is None else found.teraflops.get(kind)
    return None if rate is None else rate * 1e12


def _dtype(dtype: str) -> str:
    kind = dtype.removeprefix("torch.").lower()
    short = {"bf16": "bfloat16", "fp16": "float16", "half": "float16", "fp8": "float8", "fp32": "float32"}
    return "float8" if kind.startswith("float8") else short.get(kind, kind)


def device_name() -> str | None:
    """Return the name of this process' CUDA or ROCm device, or None where it has none."""
    try:
        import torch
    except ImportError:
        return None
    return str(torch.cuda.get_device_name()) if torch.cuda.is_available() else None


def transformer_flops(
    parameters: float, *, tokens: float = 1, layers: int = 0, hidden: int = 0, sequence: int = 0
) -> float:
    """Return the model FLOPs of forward and backward over `tokens` tokens of a decoder.

    6 per parameter and token, and 12 · layers · hidden · sequence per token for attention; recomputed activations do
    not count. Chowdhery et al. 2022, “PaLM”, appendix B.

    Args:
        parameters: without embeddings; of a mixture of experts, those that one token uses.
        tokens: how many.
        layers: attention layers; 0 leaves attention out.
        hidden: heads · size of a head.
        sequence: length.

    Examples:
        >>> transformer_flops(7e9, tokens=4096)
        172032000000000.0
    """
    return (6.0 * parameters + 12.0 * layers * hidden * sequence) * tokens


def counted_flops(work: Callable[[], object]) -> float:
    """Run `work` once, and return the FLOPs of its matrix products as torch counts them, backward included.

    For any model; run it on one batch before the loop, since counting slows the work down.

    Args:
        work: such as `lambda: loss_of(batch).backward()`.

    Examples:
        >>> import torch
        >>> layer = torch.nn.Linear(8, 4)
        >>> counted_flops(lambda: layer(torch.ones(2, 8)))
        128.0
    """
    from torch.utils.flop_counter import FlopCounterMode

    # By default it would print a table.
    with FlopCounterMode(display=False) as counter:
        work()
    return float(counter.get_total_flops())
