"""A profile ascribes each call of CUDA to the thread that made it."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch

from tests.gpu.devices import Device
from tests.gpu.profiled import BLOCK, Profile, profiled

CALLER, SENDER = 11, 12
BLOCK_EVENT = {"name": BLOCK, "cat": "user_annotation", "tid": CALLER, "ts": 100.0, "dur": 50.0}


def call(name: str, thread: int = CALLER, ts: float = 110.0) -> dict[str, Any]:
    return {"name": name, "cat": "cuda_runtime", "tid": thread, "ts": ts, "dur": 1.0}


def test_a_call_of_another_thread_does_not_count_as_the_callers() -> None:
    found = Profile.of_trace([BLOCK_EVENT, call("cudaStreamSynchronize", SENDER), call("cudaLaunchKernel")])

    assert found.waits == []
    assert found.waits_of_others == ["cudaStreamSynchronize"]
    assert found.launches == 1


def test_calls_that_wait_are_told_from_those_that_do_not() -> None:
    waiting = ["cudaStreamSynchronize", "cudaEventSynchronize", "cudaMemcpy", "cudaHostAlloc", "cudaFree"]
    others = ["cudaMemcpyAsync", "cudaEventQuery", "cudaStreamWaitEvent", "cudaEventRecord", "cuMemcpyHtoDAsync_v2"]
    found = Profile.of_trace([BLOCK_EVENT, *map(call, [*waiting, *others])])

    assert found.waits == waiting
    assert found.launches == 3  # a blocking copy is one, too


def test_what_was_called_before_or_after_the_block_is_not_of_it() -> None:
    found = Profile.of_trace([BLOCK_EVENT, call("cudaDeviceSynchronize", ts=99.0), call("cudaLaunchKernel", ts=151.0)])

    assert (found.waits, found.launches) == ([], 0)


def test_the_time_of_the_device_is_that_of_its_kernels_copies_and_fillings() -> None:
    work = [
        {"name": "k", "cat": cat, "tid": 7, "ts": 160.0, "dur": 2.5} for cat in ("kernel", "gpu_memcpy", "gpu_memset")
    ]

    assert Profile.of_trace([BLOCK_EVENT, *work, {"name": "x", "cat": "cpu_op", "dur": 9.0}]).device_us == 7.5


@pytest.mark.gpu
def test_a_wait_of_the_caller_and_one_of_another_thread_are_told_apart(cuda: Device) -> None:
    value = torch.ones((), device="cuda")

    def elsewhere() -> None:
        thread = threading.Thread(target=value.item)
        thread.start()
        thread.join()

    mine, theirs = profiled(value.item, cuda.synchronize), profiled(elsewhere, cuda.synchronize)

    assert mine.waits != []
    assert mine.waits_of_others == []
    assert theirs.waits == []
    assert theirs.waits_of_others != []


def test_a_trace_of_this_torch_has_the_block_in_it() -> None:
    found = profiled(lambda: torch.ones(4).sum(), lambda: None)

    assert (found.launches, found.waits, found.waits_of_others) == (0, [], [])
