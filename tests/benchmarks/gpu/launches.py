"""What the profiler sees of a step: launches, calls that wait, and how long the device works for norms."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

from tests.benchmarks.gpu.calls import names
from tests.benchmarks.gpu.recorded_step import PARAMETERS_EVERY, Everything
from tests.benchmarks.gpu.shapes import Shape
from tests.benchmarks.gpu.training import training_of
from tests.gpu.devices import DEVICES, Device
from tests.gpu.profiled import Profile, profiled
from tests.gpu.warm import warmed

__all__ = ["launches"]


NUMBERS = itertools.count(1000)
"""Of the steps after those with everything."""


def launches(device: str, shape: Mapping[str, Any], repeated: int) -> dict[str, float]:
    """Return counts of launches and of waiting calls, and µs of the device."""
    import torch

    import otel_ml
    from otel_ml.diagnostics import dynamics

    otel_ml.init("bench")
    where = DEVICES[device]
    training = training_of(Shape(**shape), where)
    everything, norms = Everything(training, where), dynamics.Norms(training.model)
    fifty = dict(zip(names(50), torch.rand(50, device=device).unbind(), strict=True))
    warmed(everything.step, PARAMETERS_EVERY - 1)  # the next one has the norms of parameters, too
    step = profiled(lambda: (everything.step(), otel_ml.flush(10)), where.synchronize)
    training.step(lambda _: None)
    kept = [parameter.grad for parameter in training.model.parameters()]  # the update has left them

    def both() -> None:
        norms.record_gradients()
        norms.record_parameters()

    log, both_norms = (in_a_step(call, where, repeated) for call in (lambda: otel_ml.log(fifty), both))
    found = {
        "step.launches": step.launches,
        "waits.caller": len(step.waits),
        "waits.others": len(step.waits_of_others),
        "log_50.launches": log.launches / repeated,
        "norms.launches": both_norms.launches / repeated,
        "norms.device": both_norms.device_us / repeated,
        "norms.floor": 2 * floor(sum(one.nbytes for one in kept), where, repeated),
    }
    otel_ml.shutdown()
    return found


def in_a_step(call: Callable[[], object], device: Device, repeated: int) -> Profile:
    """Profile a call in steps of its own, each with what its end launches, once it is like the one before."""
    import otel_ml

    def step() -> None:
        otel_ml.set_step(next(NUMBERS))
        call()

    warmed(step)
    return profiled(lambda: [step() for _ in range(repeated)], device.synchronize)


def floor(size: int, device: Device, repeated: int) -> float:
    """Return the µs that reading so many bytes once takes: by a sum, or as half of a copy, whichever is quicker."""
    import torch

    source = torch.ones(size // 4, device=device.kind, dtype=torch.int32)
    target = torch.empty_like(source)
    kinds = ((source.sum, 1), (lambda: target.copy_(source), 2))
    return min(
        profiled(lambda call=call: [call() for _ in range(repeated)], device.synchronize).device_us / repeated / times
        for call, times in kinds
    )
