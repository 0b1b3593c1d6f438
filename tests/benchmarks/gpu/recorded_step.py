"""A step of training with everything on that a program records in each: what it costs is what users pay."""

from __future__ import annotations

import time
from typing import Any

from tests.benchmarks.gpu.training import Training
from tests.gpu.devices import Device

__all__ = ["PARAMETERS_EVERY", "Everything", "Scalars"]

SCALARS, TIMERS, PARAMETERS_EVERY = 30, 20, 10


class Scalars:
    """Thirty values that the device is still computing, in one call."""

    def __init__(self, training: Training, device: Device) -> None:
        import torch

        self._training = training
        self._weights = torch.arange(SCALARS, device=device.kind, dtype=torch.float32)
        self.number = -1
        self.taken: list[float] = []

    def bare(self) -> None:
        """Train one step that computes the same values, and records nothing."""
        self._training.step(self._values)

    def step(self) -> None:
        """Train one step and record."""
        import otel_ml

        self.number += 1
        otel_ml.set_step(self.number)
        self._training.step(self._timed)

    def _timed(self, loss: Any) -> None:
        values = self._values(loss)
        began = time.perf_counter()
        self.record(values)
        self.taken.append(time.perf_counter() - began)

    def _values(self, loss: Any) -> dict[str, Any]:
        scaled = (loss.detach() * self._weights).unbind()
        return {f"m{index}": value for index, value in enumerate(scaled)}

    def record(self, values: dict[str, Any]) -> None:
        import otel_ml

        otel_ml.log(values)


class Everything(Scalars):
    """That, and 20 timers, norms of gradients, of parameters each tenth step, goodput and throughput."""

    def __init__(self, training: Training, device: Device) -> None:
        from otel_ml.diagnostics import dynamics
        from otel_ml.diagnostics.goodput import Goodput
        from otel_ml.diagnostics.throughput import Throughput

        super().__init__(training, device)
        self._norms = dynamics.Norms(training.model)
        self._goodput, self._throughput = Goodput(), Throughput(window=50, peak=1e15)

    def step(self) -> None:
        with self._goodput.work(self.number + 1):
            super().step()
        self._throughput.step(samples=self._training.samples, tokens=self._training.tokens, flops=1e12)

    def record(self, values: dict[str, Any]) -> None:
        import otel_ml

        super().record(values)
        for index in range(TIMERS):
            with otel_ml.timed(f"phase{index}"):
                pass
        self._norms.record_gradients()
        if self.number % PARAMETERS_EVERY == 0:
            self._norms.record_parameters()
