"""Batches, samples, tokens and FLOPs per second over the last steps: of the job, and of a device."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable

from otel_ml.diagnostics.flops import device_name, peak_flops
from otel_ml.diagnostics.measure import Measure, Measures
from otel_ml.diagnostics.positive_number import is_above_zero
from otel_ml.exceptions import ConfigError
from otel_ml.never_raises import never_raises
from otel_ml.warn_once import reporter

__all__ = ["MEASURES", "Throughput"]

_TOTAL = ("sum",)
_DEVICE = ("mean", "min")

MEASURES = Measures(
    Measure("throughput/batches_per_sec", "{batch}/s", _TOTAL, "Batches of all replicas.", "last"),
    Measure("throughput/samples_per_sec", "{sample}/s", _TOTAL, "Samples of all replicas.", "last"),
    Measure("throughput/tokens_per_sec", "{token}/s", _TOTAL, "Tokens of all replicas.", "last"),
    Measure("throughput/tflops", "TFLOP/s", _TOTAL, "Model FLOPs of all replicas.", "last"),
    Measure("throughput/device/batches_per_sec", "{batch}/s", _DEVICE, "Batches of one device.", "last"),
    Measure("throughput/device/samples_per_sec", "{sample}/s", _DEVICE, "Samples of one device.", "last"),
    Measure("throughput/device/tokens_per_sec", "{token}/s", _DEVICE, "Tokens of one device.", "last"),
    Measure("throughput/device/tflops", "TFLOP/s", _DEVICE, "Model FLOPs of one device.", "last"),
    Measure("throughput/step_tflop", "TFLOP", _TOTAL, "Model FLOPs of a step, of all replicas."),
    Measure("throughput/epoch_tflop", "TFLOP", _TOTAL, "Model FLOPs of an epoch, of all replicas."),
    Measure("throughput/mfu", "1", _DEVICE, "Model FLOPs of one device per peak FLOPs of it.", "last"),
)
"""What is recorded, by name."""


_RATES = tuple(
    (place, f"throughput/{name}", f"throughput/device/{name}", unit)
    for place, name, unit in (
        (1, "batches_per_sec", 1.0),
        (2, "samples_per_sec", 1.0),
        (3, "tokens_per_sec", 1.0),
        (4, "tflops", 1e12),
    )
)
"""Place in what was done, names of the rate of all and of a device, unit of the amount."""


_Done = tuple[float, float, float, float, float]
"""A moment, and the batches, samples, tokens and FLOPs that were done until then, since the first call."""

_NOTHING: _Done = (0.0, 0.0, 0.0, 0.0, 0.0)


class Throughput:
    """Rates over a rolling window of steps; every rank calls `step()` once in each step.

    The first call starts the clock, the second gives the first rates; the window then grows to `window` steps. Totals
    are sums over ranks, so a rank that is missing from a step is missing from its total: `otel_ml/writers_missing` says
    so.

    Args:
        window: steps.
        devices_per_replica: devices that work on the same samples (tensor · pipeline · context parallel).
        over: the topology dimension of replicas (`"dp"`), where `devices_per_replica` is above 1: of the ranks that see
            the same samples, one counts.
        peak: FLOP/s of a device; by default that of the device this process sees, at `dtype`.
        dtype: of the matrix products, for `peak`.
        clock: seconds; for tests.

    Raises:
        ConfigError: a number is none that makes sense; all of them in one message.

    Examples:
        ```python
        throughput = Throughput(window=50)
        for batch in otel_ml.steps(loader):
            train(batch)
            flops = transformer_flops(7e9, tokens=batch.numel())
            throughput.step(samples=len(batch), tokens=batch.numel(), flops=flops)
        ```
    """

    def __init__(
        self,
        *,
        window: int = 100,
        devices_per_replica: int = 1,
        over: str | None = None,
        peak: float | None = None,
        dtype: str = "bfloat16",
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        problems = []
        if not isinstance(window, int) or window < 1:
            problems.append(f"Throughput: window: expected a number of steps from 1 on, got {window!r}.")
        if not isinstance(devices_per_replica, int) or devices_per_replica < 1:
            problems.append(
                f"Throughput: devices_per_replica: expected a number of devices from 1 on, got {devices_per_replica!r}."
            )
        if peak is not None and not is_above_zero(peak):
            problems.append(f"Throughput: peak: expected FLOP/s above 0, got {peak!r}. Leave it out if unknown.")
        if problems:
            raise ConfigError(*problems)
        # One more: a window of n steps lies between n + 1 moments.
        self._done: deque[_Done] = deque(maxlen=window + 1)
        self._devices = devices_per_replica
        self._over = over
        self._peak = peak
        self._dtype = dtype
        self._clock = clock
        self._is_peak_known = peak is not None
        self._epoch_flops = 0.0

    @never_raises
    def step(self, *, batches: float = 1, samples: float = 0, tokens: float = 0, flops: float = 0) -> None:
        """Count what this replica did since the last call, and record the rates; 0 leaves a rate out.

        Args:
            batches: micro-batches count as one each, if you like.
            samples: of this replica, not of the job.
            tokens: of this replica.
            flops: model FLOPs of forward and backward, for instance from `transformer_flops()`.
        """
        # Running totals, so the work of a window is the difference of its two ends, however many steps it has.
        before = self._done[-1] if self._done else _NOTHING
        done = (self._clock(), before[1] + batches, before[2] + samples, before[3] + tokens, before[4] + flops)
        self._done.append(done)
        self._epoch_flops += flops
        total = {"throughput/step_tflop": flops / 1e12} if flops else {}
        device = self._add_rates(done, total)
        tflops = device.get("throughput/device/tflops")
        # Asked for only where FLOPs are counted: without them a message that the peak is unknown would be noise.
        if tflops and (peak := self._peak_flops()) is not None:
            device["throughput/mfu"] = tflops * 1e12 / peak
        if self._over is None:
            MEASURES.record(total | device)
        else:
            # Totals count one rank of each replica; rates of a device count every rank.
            MEASURES.record(total, over=self._over)
            MEASURES.record(device)
        if not math.isfinite(sum(done)):  # a NaN stays in every sum after it: the window begins anew
            self._done.clear()

    @never_raises
    def epoch(self, number: int) -> None:
        """Record the FLOPs since the last epoch on the axis `epoch`; call it at the end of each."""
        flops, self._epoch_flops = self._epoch_flops, 0.0
        if flops:
            MEASURES["throughput/epoch_tflop"].record(flops / 1e12, over=self._over, step=number, axis="epoch")

    def _add_rates(self, done: _Done, total: dict[str, float]) -> dict[str, float]:
        """Add the rates of this replica over the window to `total`, return those of a device; what is 0 is left out."""
        first = self._done[0]  # whose own work was done before its time
        elapsed = done[0] - first[0]
        device: dict[str, float] = {}
        if elapsed <= 0:
            return device
        for place, of_all, of_device, unit in _RATES:
            amount = done[place] - first[place]
            if amount:
                total[of_all] = rate = amount / unit / elapsed
                device[of_device] = rate / self._devices
        return device

    def _peak_flops(self) -> float | None:
        if not self._is_peak_known:
            # Before the device is asked, which may fail: it is asked once.
            self._is_peak_known = True
            name = device_name()
            self._peak = None if name is None else peak_flops(name, self._dtype)
            if self._peak is None:
                shown = "no GPU" if name is None else f"the peak of {name!r} at {self._dtype!r} is not known"
                reporter.say(
                    "peak-unknown",
                    f"throughput/mfu is not recorded: {shown}. Pass Throughput(peak=…) in FLOP/s to have it.",
                )
        return self._peak
