"""On what something was measured; nothing that names the machine or its owner."""

from __future__ import annotations

import os
import platform
import re
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from otel_ml._internal.native import native

__all__ = ["described", "has_gpu", "last_level_cache"]

_PACKAGES = (
    "numpy",
    "protobuf",
    "opentelemetry-sdk",
    "grpcio",
    "torch",
    "triton",
    "tensorboard",
    "mlflow",
    "wandb",
    "prometheus_client",
)
_SMALLEST_CACHE = 32 * 2**20
"""Where the kernel does not say how large the cache is."""


def described() -> dict[str, str]:
    """Return cores, processor, caches, memory, and versions."""
    return {
        "cores": str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()),
        "processor": _processor(),
        "last-level cache": f"{last_level_cache() / 2**20:.0f} MiB",
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB",
        "GPU": _gpu(),
        "system": f"{platform.system()} {platform.machine()}",
        "Python": sys.version.split()[0],
        "compiled part of otel_ml": "no" if native is None else "yes",
        **{name: found for name in _PACKAGES if (found := _version(name))},
    }


def last_level_cache() -> int:
    """Return the size of the last-level cache in bytes."""
    sizes = [_bytes(path.read_text()) for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")]
    return max([*sizes, _SMALLEST_CACHE])


def has_gpu() -> bool:
    """Whether torch sees a CUDA device."""
    import torch

    return bool(torch.cuda.is_available())


def _gpu() -> str:
    import torch

    return str(torch.cuda.get_device_name(0)) if torch.cuda.is_available() else "none"


def _bytes(text: str) -> int:
    number, unit = re.fullmatch(r"(\d+)([KM]?)", text.strip()).groups()  # type: ignore[union-attr]
    return int(number) * {"": 1, "K": 2**10, "M": 2**20}[unit]


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    names = re.findall(r"^model name\s*: (.+)$", info.read_text(), re.MULTILINE) if info.exists() else []
    return str(names[0]) if names else platform.processor()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
