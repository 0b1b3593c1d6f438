"""A `logging.Handler` whose lines land in the run: of every rank, beside its metrics.

```python
import logging

from otel_ml.integrations.log_handler import LogHandler

logging.getLogger().addHandler(LogHandler(level=logging.WARNING))
```
"""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from otel_ml._internal.events.event_queue import current_events
from otel_ml._internal.events.log_record import LogRecord
from otel_ml._internal.messages.recorder import recorder
from otel_ml._internal.steps.axes import current_step
from otel_ml._internal.steps.axis import Step
from otel_ml.redaction import redacted
from otel_ml.warn_once import reporter
from otel_ml.wire import attributes as keys

__all__ = ["LINE", "LogHandler"]

LINE = "%(asctime)s %(levelname)s %(processName)s %(name)s: %(message)s"
"""How a line looks unless `setFormatter()` says otherwise."""

_MOST_LINES = 1000
"""Lines between two looks of the background thread, a tenth of a second; more come from a loop that should count."""

_LONGEST = 8192
"""Characters of a line, tracebacks included."""

_OWN = ("otel_ml", "otel_ml_exporters", "otel_ml_service")


class _Line(NamedTuple):
    step: Step
    time_ns: int
    text: str


class LogHandler(logging.Handler):
    """Records lines as the text `name` at the step in which they were logged.

    Rank 0's lines are `name`, those of others `name/rank_<r>`, of other roles `<role>/name`: as every text of a run.
    Lines of one step that come within a tenth of a second are one text. A line costs its formatting and an append:
    nothing is written, sent or waited for. Of more than 1,000 lines in a tenth of a second the rest is counted as
    dropped. What looks like a secret is hidden. otel_ml's own loggers, and what its own thread causes others to log,
    are left out. Without a run nothing is kept.

    Args:
        level: of the least important line to keep.
        name: of the text.
    """

    def __init__(self, level: int | str = logging.INFO, *, name: str = "log") -> None:
        super().__init__(level)
        self._text_name = name
        self._busy = threading.local()
        self._lines: deque[_Line] = deque()
        self._is_asked = False
        self._asked = 0.0
        self.setFormatter(logging.Formatter(LINE))
        forget = weakref.WeakMethod(self._forget)
        os.register_at_fork(after_in_child=lambda: (found := forget()) and found())

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a line."""
        if not recorder.enabled or record.name.partition(".")[0] in _OWN or _is_our_thread():
            return
        if getattr(self._busy, "now", False):
            return  # formatting a message may log
        self._busy.now = True
        try:
            self._keep(record)
        except Exception:  # noqa: BLE001 (a message whose arguments do not fit it; logging says which)
            self.handleError(record)
        finally:
            self._busy.now = False

    def _keep(self, record: logging.LogRecord) -> None:
        if len(self._lines) >= _MOST_LINES:
            reporter.drop(
                "events_queue_full", f"LogHandler: more than {_MOST_LINES} lines at once; the rest is dropped."
            )
        else:
            text = self.format(record)
            self._lines.append(_Line(current_step(), int(record.created * 1e9), text[:_LONGEST]))
        self._ask()

    def _ask(self) -> None:
        """Have the lines taken, unless that is asked for."""
        now = time.monotonic()
        # After a second again: what was asked for before a fork, or in an earlier run, is gone.
        if not self._is_asked or now - self._asked > 1.0:
            self._is_asked, self._asked = True, now
            current_events().put("LogHandler", self._records)

    def _records(self) -> Iterator[LogRecord]:
        """Yield what is there as texts; called by the background thread."""
        self._is_asked = False  # before a line is taken: one that comes meanwhile asks again
        taken = [self._lines.popleft() for _ in range(len(self._lines))]
        by_step: dict[Step, list[_Line]] = {}
        for line in taken:
            by_step.setdefault(line.step, []).append(line)
        for step, lines in by_step.items():
            attributes: dict[str, object] = {keys.NAME: self._text_name}
            if step.axis is not None and step.index is not None:
                attributes |= {keys.STEP: step.index, keys.AXIS: step.axis.name}
            body = "\n".join(redacted(line.text) for line in lines)
            yield LogRecord(keys.EVENT_TEXT, body, attributes, lines[0].time_ns)

    def _forget(self) -> None:
        """Drop the parent's lines, in a forked child."""
        self._lines.clear()
        self._is_asked = False


def _is_our_thread() -> bool:
    return threading.current_thread().name.startswith("otel-ml")
