"""A test of the hardware every so often: the same small product and copy on every rank, timed.

Ranks that do the same work in different times have different hardware below them: a throttled GPU, a slow memory, a
neighbor on the same host.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from otel_ml._internal.timers.timing import timed
from otel_ml.exceptions import ConfigError
from otel_ml.never_raises import never_raises

__all__ = ["Probe"]

_REDUCE = ("max", "argmax", "min", "argmin", "rank")
_REPEATS = 4


class Probe:
    """Times a matrix product and a copy of memory at every n-th step, where the program calls `step()`.

    Nothing runs by itself: the work is done in the call, on the thread and the device that train, so that it is seen as
    training would see it. The timers `time/hardware_test/matmul` and `time/hardware_test/copy` have the slowest rank's
    seconds, which rank that is (`/argmax`), the quickest one's (`/min`, `/argmin`), and those of each rank
    (`/rank_<r>`). On a GPU they are taken by events on the device's stream: the call does not wait for it.

    Args:
        every: steps from one test to the next; the first one tests, too.
        side: rows and columns of the matrices, float32.
        mebibytes: that are copied.
        device: `"cuda"`, `"cuda:1"`: torch's, by its name; by default the processors, with numpy.

    Raises:
        ConfigError: a number is not a whole one of at least 1.

    Examples:
        ```python
        probe = hardware.Probe(every=500, device="cuda")
        for batch in otel_ml.steps(loader):
            train(batch)
            probe.step()
        ```
    """

    def __init__(self, every: int = 100, *, side: int = 512, mebibytes: int = 64, device: str | None = None) -> None:
        given = {"every": every, "side": side, "mebibytes": mebibytes}
        problems = [
            f"Probe({name}=): expected a whole number of at least 1, got {number!r}."
            for name, number in given.items()
            if isinstance(number, bool) or not isinstance(number, int) or number < 1
        ]
        if problems:
            raise ConfigError(*problems)
        self._every = every
        self._side = side
        # A MiB has 2¹⁸ numbers of 4 bytes.
        self._floats = mebibytes * 2**18
        self._device = device
        self._steps = 0
        self._work: dict[str, Callable[[], object]] = {}

    @never_raises
    def step(self) -> None:
        """Count a step, and test the hardware at the first and at every `every`-th after it."""
        # Before the count goes up, so that the first step tests.
        is_due = self._steps % self._every == 0
        self._steps += 1
        if is_due:
            self._test()

    def _test(self) -> None:
        if not self._work:
            self._work = _on_processors(self._side, self._floats) if self._device is None else self._on_device()
            for work in self._work.values():
                work()  # the first time, libraries are loaded and memory is made
        events = None if self._device is None else "cuda"
        with self._on_its_device():
            for name, work in self._work.items():
                with timed(f"hardware_test/{name}", reduce=_REDUCE, device=events):
                    for _ in range(_REPEATS):
                        work()

    def _on_its_device(self) -> AbstractContextManager[object]:
        """Have it be the current one, whose stream events are on."""
        if self._device is None or not self._device.startswith("cuda"):
            return nullcontext()
        import torch

        device: AbstractContextManager[object] = torch.cuda.device(self._device)
        return device

    def _on_device(self) -> dict[str, Callable[[], object]]:
        import torch

        def numbers(*shape: int) -> Any:
            return torch.full(shape, 0.5, dtype=torch.float32, device=self._device)

        # Made once and written over: to ask for memory would be measured, too.
        left, right, product = (numbers(self._side, self._side) for _ in range(3))
        source, target = numbers(self._floats), numbers(self._floats)
        return {"matmul": lambda: torch.mm(left, right, out=product), "copy": lambda: target.copy_(source)}


def _on_processors(side: int, floats: int) -> dict[str, Callable[[], object]]:
    left, right, product = (np.full((side, side), 0.5, dtype=np.float32) for _ in range(3))
    source, target = (np.full(floats, 0.5, dtype=np.float32) for _ in range(2))
    return {"matmul": lambda: np.matmul(left, right, out=product), "copy": lambda: np.copyto(target, source)}
