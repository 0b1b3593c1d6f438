"""A value that is still computed on a GPU: what recording it costs, and that the caller never waits for it."""

from __future__ import annotations

from typing import Any

from tests.benchmarks.child import answer_of, sending_to
from tests.benchmarks.figures import Figure, Found, absent, middle
from tests.benchmarks.machine import has_gpu
from tests.benchmarks.sink import sink
from tests.benchmarks.sizes import Size
from tests.benchmarks.turns import hot_calls, in_turns

__all__ = ["measure"]

NO_GPU = "no GPU on this machine"
WAITING = ("Synchronize", "cudaMemcpy", "cuMemcpy")
"""What a runtime call that makes its caller wait is called; `cudaMemcpyAsync` between device memories does not."""


def measure(size: Size) -> Found:
    """Measure where there is a GPU."""
    if not has_gpu():
        return Found({"record": absent("µs", NO_GPU), "clone": absent("µs", NO_GPU), "waits": absent("1", NO_GPU)})
    with sink() as url:
        found = answer_of(on_the_gpu, env=sending_to(url), pairs=size.pairs, turn_s=size.turn_s)
    return Found(
        {
            "record": middle(found["ours"], "µs"),
            "clone": middle(found["bare"], "µs", better="neither"),
            "waits": Figure(float(found["waits"]), "1", note="synchronising calls on the caller's thread"),
        }
    )


def on_the_gpu(pairs: int, turn_s: float) -> dict[str, Any]:
    """Compare `record(tensor)` with a bare clone and event, and count the calls that wait."""
    import torch

    import otel_ml

    otel_ml.init("bench")
    otel_ml.set_step(0)
    names = {
        "metric": otel_ml.get_meter().metric("loss"),
        "loss": torch.ones((), device="cuda"),
        "torch": torch,
    }
    bare = "event = torch.cuda.Event(); copy = loss.detach().clone(); event.record()"
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
    """Return how many runtime calls on this thread made it wait while 100 values were recorded."""
    from torch.profiler import ProfilerActivity, profile, record_function

    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as watched, record_function("recording"):
        for _ in range(100):
            names["metric"].record(names["loss"])
    events = watched.events()
    [block] = [event for event in events if event.name == "recording" and event.device_type.name == "CPU"]
    inside = [
        event.name
        for event in events
        if event.thread == block.thread
        and block.time_range.start <= event.time_range.start <= block.time_range.end
        and "Async" not in event.name
    ]
    return sum(any(word in name for word in WAITING) for name in inside)
