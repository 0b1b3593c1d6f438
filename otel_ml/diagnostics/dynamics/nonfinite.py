"""Says that a gradient is not finite, naming the tensor, without waiting for the device that knows."""

from __future__ import annotations

from collections import deque
from typing import Any

from otel_ml._internal.axes import current_step
from otel_ml.once import guard

__all__ = ["NonFiniteWatch"]

_KEPT = 8
"""Steps whose copies may be on their way; a device that is further behind is looked at again soon enough."""


class NonFiniteWatch:
    """Keeps copies of norms that are on their way from the device, and looks at those that have arrived."""

    def __init__(self) -> None:
        self._coming: deque[tuple[int | None, list[str], Any, Any]] = deque(maxlen=_KEPT)
        self._is_said = False

    def add(self, names: list[str], norms: Any) -> None:
        """Begin to copy the norms of `names` to the host."""
        if self._is_said:
            return
        arrived = None
        host = norms
        if norms.is_cuda:
            import torch

            host = norms.to("cpu", non_blocking=True)
            arrived = torch.cuda.Event()
            arrived.record(torch.cuda.current_stream(norms.device))
        self._coming.append((current_step().index, names, host, arrived))

    def look(self) -> None:
        """Look at what has arrived; the first bad one is said, and the rest counted in `grad/nonfinite`."""
        while self._coming and not self._is_said:
            step, names, host, arrived = self._coming[0]
            if arrived is not None and not arrived.query():
                return
            self._coming.popleft()
            bad = [name for name, norm in zip(names, host.tolist(), strict=True) if not abs(norm) < float("inf")]
            if bad:
                self._say(bad, step)

    def found(self, bad: list[str]) -> None:
        """Take the names of what is known to be bad in the current step."""
        if bad and not self._is_said:
            self._say(bad, current_step().index)

    def _say(self, bad: list[str], step: int | None) -> None:
        self._is_said = True
        self._coming.clear()
        where = "a step" if step is None else f"step {step}"
        more = f" and {len(bad) - 1} more" if len(bad) > 1 else ""
        guard.say(
            "gradient-not-finite",
            f"The gradient of {bad[0]!r}{more} is NaN or Inf at {where}. See grad/nonfinite for the steps after it; "
            "lower the learning rate or the loss scale if it lasts.",
        )
