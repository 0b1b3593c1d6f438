"""NVIDIA's library as a shared object of ours: the real `pynvml` runs against it, and reads what a test wrote."""

from __future__ import annotations

import ctypes
import os
import subprocess
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

__all__ = ["FakeNvml", "build", "load"]

NAME = "libnvidia-ml.so.1"


@cache
def build() -> Path:
    """Compile the library, once a process; return its folder, for LD_LIBRARY_PATH."""
    folder = Path(mkdtemp(prefix="fake-nvml-"))
    source = Path(__file__).with_name("nvml.c")
    command = ["cc", "-shared", "-fPIC", "-Wall", "-Werror", f"-Wl,-soname,{NAME}", "-o", folder / NAME, source]
    subprocess.run(command, check=True)
    return folder


@cache
def load() -> None:
    """Load it into this process: who asks for a library of this name later gets it."""
    ctypes.CDLL(str(build() / NAME), mode=ctypes.RTLD_GLOBAL)


class FakeNvml:
    """The GPUs of a host.

    Args:
        folder: where their numbers lie; `FAKE_NVML` names it.
        count: how many GPUs.
    """

    def __init__(self, folder: Path, count: int = 2) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        self.put("count", count)
        self.put("driver", "555.42")
        for device in range(count):
            self.put(f"{device}.uuid", f"GPU-{device:08x}-aaaa")
            self.put(f"{device}.name", "NVIDIA Test 80GB")
            self.device(device, **HEALTHY)

    @property
    def environ(self) -> dict[str, str]:
        """What a process needs to find it."""
        path = os.pathsep.join(filter(None, [str(build()), os.environ.get("LD_LIBRARY_PATH", "")]))
        return {"FAKE_NVML": str(self.folder), "LD_LIBRARY_PATH": path}

    def device(self, index: int, **numbers: object) -> None:
        """Set numbers of a device; `!15` is an error, None takes one away. `memory_used` is `memory.used`."""
        for name, number in numbers.items():
            self.put(f"{index}.{name.replace('_', '.')}", number)

    def lose_driver(self, error: int) -> None:
        """Let every call fail from now on."""
        self.put("error", error)

    def put(self, name: str, content: object) -> None:
        path = self.folder / name
        if content is None:
            path.unlink(missing_ok=True)
            return
        new = self.folder / f".{name}"
        new.write_text(str(content))
        new.replace(path)  # a reader finds the old number or the new one


HEALTHY = {
    "utilization": 70,
    "activity": 40,
    "memory_total": 80 * 2**30,
    "memory_used": 20 * 2**30,
    "power": 300_000,
    "power_limit": 700_000,
    "energy": 1_000_000,
    "temperature": 61,
    "clock_sm": 1_980,
    "clock_memory": 2_619,
    "throttle": 0,
    "ecc_corrected": 0,
    "ecc_uncorrected": 0,
}
