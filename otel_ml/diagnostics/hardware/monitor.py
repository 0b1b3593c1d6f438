"""The sampler: a thread that reads the hardware at an interval, and records on the axis `time`."""

from __future__ import annotations

import contextlib
import difflib
import math
import socket
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from types import TracebackType

from otel_ml._internal.events.event_calls import log_params, log_summary
from otel_ml._internal.record.meter import Metric, get_meter
from otel_ml._internal.run_scope import NOW
from otel_ml._internal.safe_repr import exact_text
from otel_ml.diagnostics.current_run import id_of_run
from otel_ml.diagnostics.hardware.election import HostFolder
from otel_ml.diagnostics.hardware.measures import MEASURES
from otel_ml.diagnostics.hardware.sampled_source import KINDS, SampledSource
from otel_ml.diagnostics.hardware.source import Reading
from otel_ml.exceptions import ConfigError
from otel_ml.warn_once import reporter
from otel_ml.wire.attributes import TIME_AXIS

__all__ = ["Monitor", "start_monitor"]


class Monitor:
    """Samples GPUs, host and processes, in one process of the job a host: every rank and role may start one.

    It never waits for a device and never raises into training. A source that is not there, or goes away, is reported
    once.

    Args:
        interval: seconds between samples.
        flush_interval: seconds of the axis `time` that become one row: the mean of its samples, the sum of energy and
            errors. By default one row a sample.
        sources: which of `gpu`, `host` and `ray`; the last asks every node of the cluster, from the driver.
        prefix: in front of the metrics' names; with `system` MLflow shows them in its tab “System metrics”.

    Raises:
        ConfigError: an interval is not above 0, or a source has another name.
    """

    def __init__(
        self,
        interval: float = 10.0,
        flush_interval: float | None = None,
        *,
        sources: Sequence[str] = ("gpu", "host"),
        prefix: str = "",
    ) -> None:
        names = (sources,) if isinstance(sources, str) else tuple(sources)
        _check(interval, flush_interval, names)
        self._interval = float(interval)
        # Steps of the axis `time` are whole seconds.
        self._width = max(1, math.ceil(interval if flush_interval is None else flush_interval))
        self._names = names
        self._prefix = f"{exact_text(prefix)}/" if prefix else ""
        # Once: a name that changes while the job runs would begin new series.
        self._host = socket.gethostname()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._run_id = ""
        self._newest_id = ""  # whose rows and joules are counted, also after its folder was left
        self._origin = 0.0
        self._row = 0
        self._folder: HostFolder | None = None
        self._sources: list[SampledSource] = []
        self._metrics: dict[str, Metric] = {}
        self._joules: dict[str, float] = defaultdict(float)

    def start(self) -> Monitor:
        """Begin to sample, also after `stop()`; while it samples, nothing."""
        if self._thread is None or not self._thread.is_alive():
            self._stopped.clear()
            self._thread = threading.Thread(target=self._loop, name="otel_ml_hardware", daemon=True)
            self._thread.start()
        return self

    def stop(self, timeout: float = 5.0) -> None:
        """Take a last sample, record the energy of the run, and let another process of the host go on sampling."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join(timeout)

    def __enter__(self) -> Monitor:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _loop(self) -> None:
        # The first sample at once: a short job would end without any.
        pause = 0.0
        while not self._stopped.wait(pause):
            self._safely(self._sample)
            pause = self._interval
        # A place that is free by now was left by one that ends, too, after its own last sample of this second.
        self._safely(self._sample_as_before if self._run_id and self._run_id == id_of_run() else self._sample)
        with contextlib.suppress(Exception):
            self._sum_up()
        self._leave()

    def _safely(self, sample: Callable[[], None]) -> None:
        try:
            sample()
        except Exception as error:  # noqa: BLE001 - the thread outlives whatever is wrong with a folder
            _say(error)

    def _sample(self) -> None:
        run_id = "" if NOW.off else id_of_run()
        if self._run_id != run_id:
            self._leave()  # between two samples one run ended, and perhaps another one began
        if not run_id:  # what runs beside a program begins no run: its `init()` may still come, and say which
            return
        if self._folder is not None and not self._folder.path.exists():
            self._leave()  # another process of the job, the last as it seemed, has tidied up
        if not self._run_id:
            self._join(run_id)
        self._each(self._look)

    def _sample_as_before(self) -> None:
        """Sample what this process has sampled until now, though its host's folder may be gone."""
        self._each(self._read)

    def _each(self, look: Callable[[SampledSource], None]) -> None:
        for source in self._sources:
            try:
                look(source)
            except Exception as error:  # noqa: BLE001 - one source that fails takes no other with it
                _say(error)

    def _look(self, source: SampledSource) -> None:
        facts = source.facts()
        if facts:
            log_params({"hardware": {self._host: facts}})
        self._read(source)

    def _read(self, source: SampledSource) -> None:
        for reading in source.readings():
            if self._run_id != id_of_run():  # a run ended, and perhaps another one began, while a device was read
                return
            self._record(reading)

    def _join(self, run_id: str) -> None:
        if run_id != self._newest_id:
            self._newest_id, self._row = run_id, 0
            self._joules.clear()
        folder = self._folder = HostFolder(run_id)
        folder.join()
        self._origin = folder.origin()
        meter = get_meter("otel_ml.diagnostics.hardware")
        self._metrics = {
            measure.name: meter.metric(
                self._prefix + measure.name,
                reduce=measure.reduce,
                unit=measure.unit,
                description=measure.description,
            )
            for measure in MEASURES
        }
        self._sources = [SampledSource(name, folder) for name in self._names]
        # Last: where anything above fails, the next sample joins again.
        self._run_id = run_id

    def _leave(self) -> None:
        sources, self._sources, self._run_id = self._sources, [], ""
        for source in sources:
            source.close()
        if self._folder is not None:
            self._folder.leave()
            self._folder = None

    def _record(self, reading: Reading) -> None:
        # A clock that was set back must not lead back to rows that are closed.
        row = int((time.time() - self._origin) // self._width) * self._width
        self._row = max(self._row, row)
        attributes = {"host.name": self._host, **reading.attributes}
        self._metrics[reading.name].record(reading.value, step=self._row, axis=TIME_AXIS, attributes=attributes)
        if reading.name == "hw.energy":
            self._joules[f"host.name/{attributes['host.name']}/hw.id/{attributes['hw.id']}"] += reading.value

    def _sum_up(self) -> None:
        if self._joules and not NOW.off:
            log_summary({f"hw.energy.total/{where}": joules for where, joules in self._joules.items()})


def start_monitor(
    interval: float = 10.0,
    flush_interval: float | None = None,
    *,
    sources: Sequence[str] = ("gpu", "host"),
    prefix: str = "",
) -> Monitor:
    """Start a `Monitor`, and return it: to be used with `with`, or stopped, inside the run.

    Examples:
        ```python
        with otel_ml.init("digits"), hardware.start_monitor(interval=5):
            train()
        ```

    Raises:
        ConfigError: as for `Monitor`.
    """
    return Monitor(interval, flush_interval, sources=sources, prefix=prefix).start()


def _say(error: Exception) -> None:
    reporter.say("hardware-lost", f"A sample of the hardware failed: {type(error).__name__}: {error}.")


def _check(interval: object, flush_interval: object, sources: Sequence[str]) -> None:
    problems: list[str] = []
    for name, seconds in (("interval", interval), ("flush_interval", flush_interval)):
        if seconds is None and name == "flush_interval":
            continue
        if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 < seconds < math.inf:
            problems.append(f"Monitor({name}=): expected seconds above 0, got {seconds!r}.")
    for source in sources:
        if source not in KINDS:
            near = difflib.get_close_matches(str(source), KINDS, 1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            problems.append(f"Monitor(sources=): expected some of {', '.join(KINDS)}, got {source!r}.{hint}")
    if problems:
        raise ConfigError(*problems)
