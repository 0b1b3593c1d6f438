"""Profiler windows: torch's profiler runs during chosen steps of chosen ranks, and its results become artifacts."""

from __future__ import annotations

import csv
import threading
from collections.abc import Callable, Container, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import otel_ml
from otel_ml._internal.events.artifact_calls import log_artifact
from otel_ml.diagnostics.current_run import current_run, folder_for_files
from otel_ml.exceptions import ConfigError
from otel_ml.warn_once import reporter

__all__ = ["Window", "window"]

T = TypeVar("T")

WRITING_TIMEOUT = 60.0
"""Seconds that the end of the block waits for the files at most; a trace of many operations takes some."""


class Window:
    """Starts and stops torch's profiler as the steps of this rank go by; made by `window()`."""

    def __init__(self, steps: Container[int], ranks: Container[int] | None, options: dict[str, Any]) -> None:
        self._steps = steps
        self._ranks = ranks
        self._options = options
        self._profiler: Any = None
        self._first = 0
        self._last = 0
        self._is_off = False
        self._writers: list[threading.Thread] = []

    def step(self) -> None:
        """Look at the current step: call it at the beginning of each. Outside of the window it costs a look-up."""
        index = otel_ml.current_step()
        if self._is_off or index is None:
            return
        is_inside = index in self._steps
        if self._profiler is None:
            if is_inside:
                self._safely(lambda: self._start(index))
        # The window is over as soon as a step outside of it is current, also where steps were left out.
        elif not is_inside:
            self._safely(self._stop)
        elif index != self._last:
            self._last = index
            self._safely(self._profiler.step)

    def over(self, iterable: Iterable[T]) -> Iterator[T]:
        """Iterate over what `otel_ml.steps()` returns, and call `step()` at the beginning of each."""
        with self:
            for item in iterable:
                self.step()
                yield item

    def __enter__(self) -> Window:
        return self

    def __exit__(self, *_: object) -> None:
        if self._profiler is not None:
            self._safely(self._stop)
        # At the end of the process threads of ours are cut off, and half a trace is none.
        for writer in self._writers:
            writer.join(WRITING_TIMEOUT)

    def _start(self, index: int) -> None:
        rank = _rank()
        if self._ranks is not None and rank not in self._ranks:
            # Asked once: a rank does not change.
            self._is_off = True
            return
        # Not at the top: only the ranks and steps that profile need it.
        import torch

        profiler = torch.profiler.profile(**self._options)
        profiler.start()
        self._profiler, self._first, self._last = profiler, index, index

    def _stop(self) -> None:
        # First: where `stop()` raises, no later step stops it again.
        profiler, self._profiler = self._profiler, None
        profiler.stop()
        # Making the files takes longer than a step: training does not wait for it.
        name = f"profile-steps-{self._first}-{self._last}-rank-{_rank()}"
        arguments = (profiler, name, self._last)
        writer = threading.Thread(target=_write, args=arguments, name="otel_ml_profile", daemon=True)
        writer.start()
        self._writers.append(writer)

    def _safely(self, change: Callable[[], None]) -> None:
        try:
            change()
        except Exception as error:  # noqa: BLE001 - CUPTI, another profiler that runs, no torch: training goes on
            # For good: a profiler that failed once, as of CUPTI, fails again in each window.
            self._profiler, self._is_off = None, True
            reporter.say("profiling-failed", f"The profiler is not used: {type(error).__name__}: {error}.")


def window(
    steps: Iterable[int] | range,
    *,
    ranks: Iterable[int] | None = (0,),
    record_shapes: bool = False,
    profile_memory: bool = False,
    with_stack: bool = False,
    with_flops: bool = False,
) -> Window:
    """Return a profiler window: torch's profiler, on CPU and CUDA, during `steps` of `ranks`.

    Each contiguous window becomes an artifact `profile-steps-<first>-<last>-rank-<r>` of type `profile` with the trace
    (`trace.json`, for Perfetto or `chrome://tracing`) and the averages by operation (`operations.csv`). They are
    written in the background.

    Args:
        steps: of the axis whose step is current, such as `range(10, 12)`.
        ranks: which ranks profile; None is all.
        record_shapes: also keep the shapes of inputs.
        profile_memory: also follow allocations.
        with_stack: also keep the source lines; slow.
        with_flops: also estimate floating-point operations of matrix products.

    Raises:
        ConfigError: a step or a rank is not a whole number from 0 on.

    Examples:
        ```python
        for batch in profiling.window(range(10, 12), ranks=[0]).over(otel_ml.steps(loader)):
            train(batch)
        ```
    """
    options = {
        "record_shapes": record_shapes,
        "profile_memory": profile_memory,
        "with_stack": with_stack,
        "with_flops": with_flops,
    }
    problems: list[str] = []
    chosen_steps = _numbers("steps", steps, problems)
    chosen_ranks = None if ranks is None else _numbers("ranks", ranks, problems)
    if problems:
        raise ConfigError(*problems)
    return Window(chosen_steps, chosen_ranks, options)


def _numbers(name: str, given: object, problems: list[str]) -> Container[int]:
    # A range is asked and never listed: one that means from here on has more numbers than there is memory.
    ends = (given[0], given[-1]) if isinstance(given, range) and given else ()
    if isinstance(given, range) and ends and min(ends) >= 0:
        return given
    try:
        found = list(ends or given)  # type: ignore[call-overload] # said if it cannot
    except TypeError:
        found = [given]
    wrong = [item for item in found if isinstance(item, bool) or not isinstance(item, int) or item < 0]
    if wrong or not found:
        shown = wrong[0] if wrong else given
        problems.append(f"window({name}=): expected whole numbers from 0 on, such as range(10, 12), got {shown!r}.")
    return frozenset(found) if not wrong else frozenset()


def _rank() -> int:
    run = current_run()
    return 0 if run is None else run.rank


def _write(profiler: Any, name: str, step: int) -> None:
    try:
        folder = folder_for_files() / name
        folder.mkdir(parents=True, exist_ok=True)
        profiler.export_chrome_trace(str(folder / "trace.json"))
        _write_averages(profiler.key_averages(), folder / "operations.csv")
        log_artifact(folder, name=name, type="profile", step=step)
    except Exception as error:  # noqa: BLE001 - a full disk must not end training
        reporter.say("profiling-failed", f"A profile is not kept: {type(error).__name__}: {error}.")


_COLUMNS = {
    "name": "key",
    "calls": "count",
    "cpu_time_us": "cpu_time_total",
    "self_cpu_time_us": "self_cpu_time_total",
    "device_time_us": "device_time_total",
    "self_device_time_us": "self_device_time_total",
    "cpu_memory_bytes": "cpu_memory_usage",
    "device_memory_bytes": "device_memory_usage",
    "flops": "flops",
}
"""Column → what torch calls it."""


def _write_averages(averages: Any, path: Path) -> None:
    """Write one row an operation, the most expensive first."""
    rows = sorted(averages, key=lambda row: row.self_cpu_time_total, reverse=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(_COLUMNS)
        writer.writerows([getattr(row, attribute, "") for attribute in _COLUMNS.values()] for row in rows)
