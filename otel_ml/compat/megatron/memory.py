"""Device memory of this process, from the allocator's own counters: no wait for the device."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

__all__ = ["device_memory"]

_DEFAULT = {
    f"{kind}_bytes.all.{when}": f"mem-{prefix}{name}"
    for kind, name in (
        ("allocated", "allocated"),
        ("active", "active"),
        ("inactive_split", "inactive"),
        ("reserved", "reserved"),
    )
    for when, prefix in (("current", ""), ("peak", "max-"))
} | {"num_alloc_retries": "mem-alloc-retires", "num_ooms": "mem-ooms"}
"""`mem-alloc-retires` is Megatron's spelling."""


def device_memory(memory_keys: Mapping[str, str] | None, *, with_used: bool) -> dict[str, float]:
    """Return `memory/<name>-gigabytes` of 10⁹ bytes, counts without that ending; nothing where there is no CUDA."""
    torch: Any = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return {}
    stats = torch.cuda.memory_stats()
    found: dict[str, float] = {}
    for key, name in (memory_keys or _DEFAULT).items():
        if key in stats:
            is_bytes = "bytes" in key
            found[f"memory/{name}-gigabytes" if is_bytes else f"memory/{name}"] = stats[key] / (1e9 if is_bytes else 1)
    if with_used:
        free, total = torch.cuda.mem_get_info()
        found["memory/mem-device-used-gigabytes"] = (total - free) / 1e9
    return found
