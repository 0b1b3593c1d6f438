"""What a logger measures itself when it is asked to: operations, the system, energy."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from otel_ml._internal.own_threads import begin_own_thread

__all__ = ["CARBON_INTENSITY", "Energy", "flops_of_batch", "flops_of_epoch", "system"]

CARBON_INTENSITY = 480.0
"""Grams of CO₂ equivalent per kWh: the world's electricity in 2023 (Ember, Global Electricity Review 2024)."""

Counter = tuple[Callable[[], float | None], float]
"""What reads its joules, and where it begins again."""

_RAPL = Path("/sys/class/powercap")


def flops_of_batch(model: Any, batch: Any) -> int:
    """Count the floating-point operations of one forward pass, by running it without gradients."""
    return _operations(model, _inputs(batch))


def _operations(model: Any, inputs: Any) -> int:
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    # Of each module: `train()` would have a norm that the program keeps frozen train, too.
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            _forward(model, inputs)
    finally:
        for module, is_training in modes:
            module.training = is_training
    return int(counter.get_total_flops())


def flops_of_epoch(model: Any, dataset: Iterable[Any]) -> int:
    """Count the operations of a forward pass over all batches; batches of one shape are counted once."""
    known: dict[object, int] = {}
    total = 0
    for batch in dataset:
        inputs = _inputs(batch)
        # As a text: a dictionary of shapes cannot be the key of one.
        key = repr(_shape(inputs))
        if key not in known:
            known[key] = _operations(model, inputs)
        total += known[key]
    return total


def _inputs(batch: Any) -> Any:
    """Return the inputs of a batch: of a pair of inputs and targets the first."""
    return batch[0] if isinstance(batch, (tuple, list)) and len(batch) == 2 else batch


def _forward(model: Any, inputs: Any) -> None:
    if isinstance(inputs, Mapping):
        model(**inputs)
    elif isinstance(inputs, (tuple, list)):
        model(*inputs)
    else:
        model(inputs)


def _shape(value: Any) -> object:
    if isinstance(value, Mapping):
        return {key: _shape(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [_shape(item) for item in value]
    return tuple(getattr(value, "shape", ()))


def system() -> dict[str, float]:
    """Measure this host and process: percent of CPU, memory and disk, the process' bytes, each GPU that NVML shows.

    What cannot be measured is left out.
    """
    found: dict[str, float] = {}
    try:
        import psutil
    except ImportError:
        pass
    else:
        # psutil measures since its call before this one; the first one in a process says 0.
        found["cpu_usage"] = float(psutil.cpu_percent())
        found["memory_usage"] = float(psutil.virtual_memory().percent)
        found["disk_usage"] = float(psutil.disk_usage(os.path.sep).percent)
        found["process_memory_bytes"] = float(psutil.Process().memory_info().rss)
    for index, (nvml, device) in enumerate(_gpus()):
        usage, memory = nvml.nvmlDeviceGetUtilizationRates(device), nvml.nvmlDeviceGetMemoryInfo(device)
        found[f"gpu_{index}/usage"] = float(usage.gpu)
        found[f"gpu_{index}/memory_usage"] = 100.0 * float(memory.used) / float(memory.total)
        found[f"gpu_{index}/power_W"] = nvml.nvmlDeviceGetPowerUsage(device) / 1000
    return found


class Energy:
    """Energy since this object was made, by the counters that there are: Intel RAPL, and NVML of each GPU.

    Counters are read, power is not integrated: no interval is assumed. RAPL's begins again at `max_energy_range_uj`,
    mostly 262,144 J, which 300 W use in a quarter of an hour: a thread looks at it more often, until `stop()`.

    Args:
        counters: what reads the joules of each, and where it begins again; by default those of this host.
        every: seconds between two looks.
    """

    def __init__(self, counters: Iterable[Counter] | None = None, *, every: float = 60.0) -> None:
        found = _counters() if counters is None else counters
        self._counts = [_Count(read, wraps, before) for read, wraps in found if (before := read()) is not None]
        self._is_over = threading.Event()
        wrapping = [count for count in self._counts if count.wraps]
        if wrapping:
            looks = threading.Thread(
                target=_look, args=(wrapping, self._is_over, every), name="otel_ml_energy_counters", daemon=True
            )
            with suppress(RuntimeError):  # the system gives no thread: one wrap is seen without it
                looks.start()

    def joules(self) -> float | None:
        """Return the energy used; None where nothing measures it."""
        return sum(count.used() for count in self._counts) if self._counts else None

    def stop(self) -> None:
        """Look at the counters no more: nobody will ask."""
        self._is_over.set()


class _Count:
    """What one counter has counted."""

    def __init__(self, read: Callable[[], float | None], wraps: float, begun: float) -> None:
        self.wraps = wraps
        self._read = read
        self._last = begun, 0.0

    def used(self) -> float:
        """Return the joules since the beginning; it sees one wrap since the last call."""
        # Before the counter is read, and put back as one: another thread's reading in between is not a wrap, and
        # whichever of the two stays is right. A lock would be held for ever in a process that is forked meanwhile.
        before, used = self._last
        now = self._read()
        if now is None:
            return used
        # The counters of NVML have no limit, and come with 0.
        used += now - before if now >= before else now - before + self.wraps
        self._last = now, used
        return used


def _look(counts: Sequence[_Count], is_over: threading.Event, every: float) -> None:
    begin_own_thread()
    while not is_over.wait(every):
        for count in counts:
            count.used()


def _counters() -> Iterable[Counter]:
    # Packages alone: `intel-rapl:0:0` and the like are parts of them, and would count twice.
    for folder in sorted(_RAPL.glob("intel-rapl:[0-9]")):
        limit = _microjoules(folder / "max_energy_range_uj")
        yield partial(_microjoules, folder / "energy_uj"), limit or 0.0
    for nvml, device in _gpus():
        yield partial(_nvml_joules, nvml, device), 0.0


def _microjoules(file: Path) -> float | None:
    try:
        return int(file.read_text()) / 1e6
    except (OSError, ValueError):  # readable for root only on most hosts
        return None


def _nvml_joules(nvml: Any, device: Any) -> float | None:
    try:
        return float(nvml.nvmlDeviceGetTotalEnergyConsumption(device)) / 1000
    except nvml.NVMLError:
        return None


def _gpus() -> list[tuple[Any, Any]]:
    """Return (the library, a handle) of each GPU that NVML shows, also where CUDA_VISIBLE_DEVICES is not set."""
    try:
        import pynvml
    except ImportError:
        return []
    try:
        pynvml.nvmlInit()
        return [(pynvml, pynvml.nvmlDeviceGetHandleByIndex(i)) for i in range(pynvml.nvmlDeviceGetCount())]
    except pynvml.NVMLError:
        return []
