"""torchtitan's structured logger on every rank: the phases of its steps are timers, and its scalars metrics.

```bash
TITAN_STRUCT_LOGGER_HANDLERS=otel_ml.integrations.torchtitan.register_handler torchrun … -m torchtitan.train …
```

torchtitan writes files of its own only if its factory is named there, too.
"""

from __future__ import annotations

import logging
from collections import Counter

import otel_ml
from otel_ml.types import Timer

__all__ = ["register_handler"]

_STEP = "step"
_START, _END = "_start", "_end"


def register_handler(*, structured_logger: logging.Logger, **of_the_process: object) -> None:
    """Add what records to torchtitan's structured logger; torchtitan calls this, once in each process.

    `log_trace_span("optim")` is the timer `optim`, published as `time/optim` in seconds: the slowest rank counts, as
    with `otel_ml.timed()`. `log_trace_scalar({"n": 3})` is the metric `n`. Both are at torchtitan's step, which is
    the step of the process from then on. What comes before the first step is left out: no run may have begun yet.

    Args:
        structured_logger: torchtitan's.
        of_the_process: rank, source and folder, which otel_ml knows or does not need.
    """
    del of_the_process
    structured_logger.addHandler(_Handler())


class _Handler(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self._timers: dict[str, Timer] = {}
        self._running: Counter[str] = Counter()
        self._is_training = False

    def emit(self, record: logging.LogRecord) -> None:
        """Record what a line of torchtitan's says."""
        kind = str(getattr(record, "log_type_name", ""))
        step = getattr(record, "step", None)
        if kind == _STEP + _START and isinstance(step, int):
            self._is_training = True
            otel_ml.set_step(step)
        if not self._is_training:
            return
        if kind == "metric_value":
            otel_ml.log({str(getattr(record, "event_name", "")): getattr(record, "value", None)})
        elif kind.endswith(_START):
            self._start(kind.removesuffix(_START))
        elif kind.endswith(_END):
            self._stop(kind.removesuffix(_END))

    def _start(self, name: str) -> None:
        # Counted, as spans of one name may be inside of each other.
        self._running[name] += 1
        self._timer(name).start()

    def _stop(self, name: str) -> None:
        # A span may have begun before the first step, or while torch compiled, when torchtitan says nothing.
        if self._running[name]:
            self._running[name] -= 1
            self._timer(name).stop()

    def _timer(self, name: str) -> Timer:
        if name not in self._timers:
            self._timers[name] = otel_ml.timer(name)
        return self._timers[name]
