"""How fast training goes: over a window of iterations, and since it began."""

from __future__ import annotations

from collections import deque

__all__ = ["Throughput", "runtime"]


class Throughput:
    """Rates over the last `window` iterations; silent until so many have passed."""

    def __init__(self, window: int) -> None:
        self._stamps: deque[tuple[float, int]] = deque(maxlen=window + 1)

    def rates(self, now: float, samples: int, seq_length: int | None, world_size: int) -> dict[str, float]:
        """Take the time and the samples so far; return batches, samples and tokens per second, and per device."""
        self._stamps.append((now, samples))
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
