"""What single calls take on the training thread: in a loop while the device rests, and once in a step of training."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tests.benchmarks.gpu.shapes import Shape
from tests.benchmarks.gpu.training import Training, training_of
from tests.gpu.devices import DEVICES, Device
from tests.gpu.warm import WARM, warmed

__all__ = ["calls"]

LOOP = 100
"""Records of a loop: few, as a full queue of launches would make anybody wait."""


def calls(device: str, shape: Mapping[str, Any], steps: int) -> dict[str, list[float]]:
    """Return µs a call, of each kind `steps` times."""
    import otel_ml

    otel_ml.init("bench")
    where, numbers = DEVICES[device], itertools.count()
    found = idle(where, numbers, steps) | in_training(where, training_of(Shape(**shape), where), numbers, steps)
    otel_ml.shutdown()
    return found


def idle(device: Device, numbers: Iterator[int], turns: int) -> dict[str, list[float]]:
    """Measure with a device that rests: a loop of records; `log()` and `.item()` of fifty, in turns.

    With the end of the step, at which what it has recorded leaves the device.
    """
    import torch

    import otel_ml

    metric, one = otel_ml.get_meter().metric("one"), torch.ones((), device=device.kind)
    fifty = dict(zip(names(50), torch.rand(50, device=device.kind).unbind(), strict=True))

    def record() -> None:
        for _ in range(LOOP):
            metric.record(one)
        otel_ml.set_step(next(numbers))

    def log() -> None:
        otel_ml.log(fifty)
        otel_ml.set_step(next(numbers))

    def items() -> None:
        for value in fifty.values():
            value.item()

    kinds = {"record": record, "log_50": log, "items_50": items}
    found: dict[str, list[float]] = {name: [] for name in kinds}
    otel_ml.set_step(next(numbers))
    for turn in range(-WARM, turns):
        for name, call in kinds.items():
            device.synchronize()
            taken = us(call)
            otel_ml.flush(10)
            if turn >= 0:
                found[name].append(taken / (LOOP if name == "record" else 1))
    return found


def in_training(device: Device, training: Training, numbers: Iterator[int], steps: int) -> dict[str, list[float]]:
    """Measure between backward and update of a step, once in each: caches are training's."""
    import torch

    import otel_ml
    from otel_ml.diagnostics import dynamics

    norms, metric = dynamics.Norms(training.model), otel_ml.get_meter().metric("loss")
    weights = torch.arange(50, device=device.kind, dtype=torch.float32)

    def operation(_: Any) -> None:
        with otel_ml.operation("train"):
            pass

    def timer(_: Any) -> None:
        with otel_ml.timed("region", device=device.kind):
            pass

    def both_norms(_: Any) -> None:
        norms.record_gradients()
        norms.record_parameters()

    kinds: dict[str, Callable[[Any], None]] = {
        "record.cold": lambda loss: metric.record(loss["m0"]),
        "log_50.cold": otel_ml.log,
        "operation": operation,
        "timer": timer,
        "norms": both_norms,
    }
    found: dict[str, list[float]] = {}
    for name, call in kinds.items():
        taken: list[float] = []

        def before_update(loss: Any, call: Callable[[Any], None] = call, taken: list[float] = taken) -> None:
            values = dict(zip(names(50), (loss.detach() * weights).unbind(), strict=True))
            otel_ml.set_step(next(numbers))
            taken.append(us(lambda: call(values)))

        warmed(lambda: training.step(before_update))
        del taken[:]
        for _ in range(steps):
            training.step(before_update)
        otel_ml.flush(10)
        found[name] = taken
    return found


def names(count: int) -> list[str]:
    return [f"m{index}" for index in range(count)]


def us(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return (time.perf_counter() - began) * 1e6
