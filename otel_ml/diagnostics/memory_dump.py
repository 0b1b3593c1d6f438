"""What fills a CUDA device, allocation by allocation: torch's memory snapshots as artifacts, also when it is full."""

from __future__ import annotations

import sys
from typing import Any

from otel_ml._internal.events.artifact_calls import log_artifact
from otel_ml.diagnostics.current_run import current_run, folder_for_files
from otel_ml.warn_once import reporter

__all__ = ["dump_memory", "dump_on_out_of_memory", "record_memory_history"]


def record_memory_history(max_entries: int = 100_000) -> bool:
    """Let torch note where each allocation comes from; return whether there is a CUDA device to note it of.

    Args:
        max_entries: allocations kept.
    """
    cuda = _cuda("record_memory_history()")
    if cuda is None:
        return False
    cuda.memory._record_memory_history(max_entries=max_entries)  # noqa: SLF001 - torch documents it under this name
    return True


def dump_memory(name: str = "memory-snapshot") -> bool:
    """Write a snapshot of the allocator, and record it as an artifact of type `memory`; return whether it was written.

    https://pytorch.org/memory_viz shows it. Writing happens here and now: it is for the moments that are worth it.
    """
    cuda = _cuda("dump_memory()")
    if cuda is None:
        return False
    try:
        run = current_run()
        # With the rank: all ranks of a host share the folder.
        path = folder_for_files() / f"{name}-rank-{0 if run is None else run.rank}.pickle"
        cuda.memory._dump_snapshot(str(path))  # noqa: SLF001 - torch documents it under this name
    except Exception as error:  # noqa: BLE001 - called where memory is short and the disk may be full
        reporter.say("profiling-failed", f"No memory snapshot is kept: {type(error).__name__}: {error}.")
        return False
    log_artifact(path, name=name, type="memory")
    return True


def dump_on_out_of_memory(name: str = "out-of-memory") -> bool:
    """Dump a snapshot whenever a CUDA allocation fails; return whether there is a device to watch.

    Call `record_memory_history()` before, or the snapshot says what is held and not from where.
    """
    cuda = _cuda("dump_on_out_of_memory()")
    if cuda is None:
        return False

    def observer(device: int, size: int, total: int, free: int) -> None:
        del device, size, total, free  # the snapshot has them
        dump_memory(name)

    sys.modules["torch"]._C._cuda_attach_out_of_memory_observer(observer)  # noqa: SLF001 - there is no public hook
    return True


def _cuda(call: str) -> Any:
    # Not imported: where nobody has loaded torch, nothing of it is on a device.
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        return torch.cuda
    reporter.say("no-hardware", f"{call}: there is no CUDA device, so there is nothing to look at. Training goes on.")
    return None
