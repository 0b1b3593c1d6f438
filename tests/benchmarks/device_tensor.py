"""A value that is still computed on a device: what recording it costs, and that the caller never waits for it."""

from __future__ import annotations

from typing import Any

from otel_ml._internal.record.fold import FOLDER
from tests.benchmarks.child import answer_of, sending_to
from tests.benchmarks.figures import Figure, Found, absent, middle
from tests.benchmarks.machine import has_gpu
from tests.benchmarks.sink import sink
from tests.benchmarks.sizes import Size
from tests.benchmarks.turns import hot_calls, in_turns

__all__ = ["measure"]

WAITING = ("cudaMemcpy", "cuMemcpy", "cudaFree", "cudaMallocHost", "cudaHostAlloc", "cudaHostRegister")
"""How calls of CUDA begin that make their caller wait, as all do that have `Synchronize` in their names, and none that
has `Async`. What operators of torch wait for is among them: `.item()` is a copy and a `cudaStreamSynchronize`."""

UNITS = {"record": "µs", "clone": "µs", "waits": "1"}
NO_GPU = "no GPU on this machine"
DEVICES = {"gpu": "cuda", "meta": "meta"}
"""`meta` is torch's device that has no memory and computes nothing: what is left is what the caller's thread does
besides the driver's launches and the event. A call that would wait for a value raises."""


def measure(size: Size) -> Found:
    """Measure on both devices."""
    figures: dict[str, Figure] = {}
    for name, device in DEVICES.items():
        if device == "cuda" and not has_gpu():
            figures |= {f"{name}.{part}": absent(unit, NO_GPU) for part, unit in UNITS.items()}
            continue
        with sink() as url:
            found = answer_of(on_device, env=sending_to(url), device=device, pairs=size.pairs, turn_s=size.turn_s)
        figures[f"{name}.record"] = middle(found["ours"], UNITS["record"])
        figures[f"{name}.clone"] = middle(found["bare"], UNITS["clone"], better="neither")
        figures[f"{name}.waits"] = Figure(float(found["waits"]), "1", note="synchronizing calls on the caller's thread")
    return Found(figures)


def on_device(device: str, pairs: int, turn_s: float) -> dict[str, Any]:
    """Compare `record(tensor)` with a bare clone and event, and count the calls that wait."""
    import torch

    import otel_ml

    otel_ml.init("bench")
    otel_ml.set_step(0)
    names = {
        "metric": otel_ml.get_meter().metric("loss"),
        "loss": torch.ones((), device=device),
        "torch": torch,
    }
    bare = "copy = loss.detach().clone()"
    if device == "cuda":
        bare = f"event = torch.cuda.Event(); {bare}; event.record()"
    # Few calls a turn: a full launch queue would make anybody wait.
    ours, theirs = in_turns(
        hot_calls("metric.record(loss)", names, turn_s, calls=100),
        hot_calls(bare, names, turn_s, calls=100),
        pairs,
        after_ours=lambda: otel_ml.flush(10),
    )
    waits = waiting_calls(names)
    otel_ml.shutdown()
    return {"ours": ours, "bare": theirs, "waits": waits}


def waiting_calls(names: dict[str, Any]) -> int:
    """Return how many calls of CUDA made this thread wait while it recorded 100 values.

    Of calls that belong to no operator of torch, the profiler says that the thread that ends it has made them. The
    background thread reads no value meanwhile, or what it asks the device for would be counted here.
    """
    from torch.profiler import profile, record_function

    with FOLDER.lock, profile() as watched, record_function("recording"):
        for _ in range(100):
            names["metric"].record(names["loss"])
    events = watched.events()
    [block] = [event for event in events if event.name == "recording" and event.device_type.name == "CPU"]
    inside = [event.name for event in events if _is_in(block, event)]
    return sum(map(is_waiting, inside))


def _is_in(block: Any, event: Any) -> bool:
    begins = event.time_range.start
    return event.thread == block.thread and bool(block.time_range.start <= begins <= block.time_range.end)


def is_waiting(name: str) -> bool:
    """Whether a call of CUDA makes its caller wait, by its name.

    Examples:
        >>> [is_waiting(name) for name in ("cudaStreamSynchronize", "cudaMemcpy", "cuMemcpyDtoH_v2", "cudaHostAlloc")]
        [True, True, True, True]
        >>> [is_waiting(name) for name in ("cudaMemcpyAsync", "cudaEventQuery", "cudaFreeAsync", "aten::_to_copy")]
        [False, False, False, False]
    """
    return "Synchronize" in name or (name.startswith(WAITING) and "Async" not in name)
