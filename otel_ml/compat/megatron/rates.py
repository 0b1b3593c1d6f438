"""How fast training goes: over a window of iterations, and since it began."""

from __future__ import annotations

from collections import deque
from typing import Any

__all__ = ["Spent", "Throughput", "runtime"]


class Spent:
    """What iterations took of something, operations or energy; an iteration that does not say is not counted."""

    def __init__(self) -> None:
        self._total: Any = 0.0
        self._seconds = 0.0
        self._iterations = 0

    def add(self, amount: Any, seconds: float) -> None:
        """Take an iteration."""
        if amount is not None:
            self._total, self._seconds = self._total + amount, self._seconds + seconds
            self._iterations += 1

    @property
    def per_second(self) -> Any:
        """All of it over the time of its iterations; None without a time."""
        return self._total / self._seconds if self._seconds > 0 else None

    @property
    def per_iteration(self) -> Any:
        """The mean; None without an iteration."""
        return self._total / self._iterations if self._iterations else None


class Throughput:
    """Rates over the last `window` iterations; silent until so many have passed."""

    def __init__(self, window: int) -> None:
        # One more: between n + 1 points in time are n iterations.
        self._stamps: deque[tuple[float, int]] = deque(maxlen=window + 1)

    def rates(self, now: float, samples: int, seq_length: int | None, world_size: int) -> dict[str, float]:
        """Take the time and the samples so far; return batches, samples and tokens per second, and per device."""
        self._stamps.append((now, samples))
        # The oldest point in time of the window, and the samples by then.
        began, first = self._stamps[0]
        if len(self._stamps) < (self._stamps.maxlen or 0) or now <= began:
            return {}
        per_second = {
            "batches": (len(self._stamps) - 1) / (now - began),
            "samples": (samples - first) / (now - began),
        }
        if seq_length is not None:
            per_second["tokens"] = per_second["samples"] * seq_length
        whole = {f"throughput/{name}_per_sec": value for name, value in per_second.items()}
        device = {f"throughput/device/{name}_per_sec": value / world_size for name, value in per_second.items()}
        return whole | device


def runtime(elapsed: float, done: int, whole: int | None, unit_s: float) -> dict[str, float]:
    """Return the time so far and, where the number of iterations is known, what remains, in units of `unit_s`."""
    found = {"time/total": elapsed / unit_s}
    if whole and 0 < done <= whole:
        found["time/remaining_estimate"] = elapsed / done * (whole - done) / unit_s
    return found
