"""Which calls of CUDA's runtime are made, on which thread, and how long the device works: by torch's profiler.

Its trace says on which thread of the operating system a call was made. Its events do not: a call outside of an operator
of torch, as a background thread makes it, is ascribed there to the thread that ends the profile.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["WAITS", "Profile", "profiled"]

WAITS = re.compile(r"Synchronize|^cu(da)?(Memcpy(?!.*Async)|Malloc|Free|HostAlloc|MallocHost|MemAlloc|MemFree)")
"""Calls that make their caller wait: for the device, or for memory of it."""

_WORK = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
_RUNTIME = frozenset({"cuda_runtime", "cuda_driver"})
_LAUNCHES = re.compile(r"Launch(Cooperative)?Kernel|^cu(da)?(Memcpy|Memset)|GraphLaunch")
BLOCK = "profiled block"


@dataclass(frozen=True)
class Call:
    """One call of CUDA's runtime or driver."""

    name: str
    thread: int
    began: float


@dataclass(frozen=True)
class Profile:
    """What happened while a block ran.

    Attributes:
        caller: the thread that ran it.
        calls: of CUDA's runtime, on any thread.
        device_us: what the device worked, µs.
    """

    caller: int
    calls: Sequence[Call]
    device_us: float

    @property
    def launches(self) -> int:
        """Kernels, copies and fillings that the caller has launched."""
        return sum(call.thread == self.caller and bool(_LAUNCHES.search(call.name)) for call in self.calls)

    @property
    def waits(self) -> list[str]:
        """Calls that made the caller wait."""
        return [call.name for call in self.calls if call.thread == self.caller and WAITS.search(call.name)]

    @property
    def waits_of_others(self) -> list[str]:
        """Calls that made another thread wait."""
        return [call.name for call in self.calls if call.thread != self.caller and WAITS.search(call.name)]

    @classmethod
    def of_trace(cls, events: Sequence[Mapping[str, Any]]) -> Profile:
        """Read the events of a trace."""
        [block] = [event for event in events if event.get("name") == BLOCK and event.get("cat") == "user_annotation"]
        caller, began, ended = int(block["tid"]), block["ts"], block["ts"] + block["dur"]
        calls = [call for call in _calls(events) if began <= call.began <= ended]
        worked = sum(event["dur"] for event in events if event.get("cat") in _WORK)
        return cls(caller, calls, float(worked))


def _calls(events: Sequence[Mapping[str, Any]]) -> Iterator[Call]:
    for event in events:
        if event.get("cat") in _RUNTIME:
            yield Call(event["name"], int(event["tid"]), float(event["ts"]))


def profiled(work: Callable[[], object], synchronize: Callable[[], object]) -> Profile:
    """Run `work` under the profiler; its device has come to rest before it and behind it."""
    from torch.profiler import profile, record_function

    synchronize()
    with profile() as watched:
        with record_function(BLOCK):
            work()
        synchronize()
    with tempfile.TemporaryDirectory(prefix="otel-ml-profile-") as folder:
        path = Path(folder) / "trace.json"
        watched.export_chrome_trace(str(path))
        return Profile.of_trace(json.loads(path.read_text(encoding="utf-8"))["traceEvents"])
