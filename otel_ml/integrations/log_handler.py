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
from functools import partial
from typing import NamedTuple

from otel_ml._internal.events.event_queue import current_events
from otel_ml._internal.events.log_record import LogRecord
from otel_ml._internal.messages.recorder import recorder
from otel_ml._internal.own_threads import is_own_thread
from otel_ml._internal.record.fold import NO_RUN
from otel_ml._internal.run_scope import NOBODY, NOW, SCOPES, current_scope
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


class _Waiting:
    """Lines of one run that its background thread has yet to take."""

    __slots__ = ("asked_s", "is_asked", "lines")

    def __init__(self) -> None:
        self.lines: deque[_Line] = deque()
        self.is_asked = False
        self.asked_s = 0.0


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
        # By the generation of their steps, which tells runs apart: of several each has a thread that takes its own.
        self._waiting: dict[int, _Waiting] = {}
        self.setFormatter(logging.Formatter(LINE))
        # Weak: the function that is called at a fork stays for good, and a handler that was removed need not.
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
        if NOW.several and current_scope() is NOBODY:
            reporter.drop("no_run", NO_RUN, kind="no run: LogHandler")
            return
        step = current_step()
        waiting = self._waiting.get(step.generation) or self._begun(step.generation)
        if len(waiting.lines) >= _MOST_LINES:
            reporter.drop(
                "events_queue_full", f"LogHandler: more than {_MOST_LINES} lines at once; the rest is dropped."
            )
        else:
            text = self.format(record)
            waiting.lines.append(_Line(step, int(record.created * 1e9), text[:_LONGEST]))
        self._ask(waiting)

    def _begun(self, generation: int) -> _Waiting:
        """Begin with a run. What one that is over has left there comes into no other."""
        self._waiting = {known: lines for known, lines in self._waiting.items() if SCOPES.of(known) is not None}
        return self._waiting.setdefault(generation, _Waiting())

    def _ask(self, waiting: _Waiting) -> None:
        """Have the lines taken, unless that is asked for."""
        now = time.monotonic()
        # After a second again: what was asked for before a fork is gone.
        if not waiting.is_asked or now - waiting.asked_s > 1.0:
            waiting.is_asked, waiting.asked_s = True, now
            current_events().put("LogHandler", partial(self._records, waiting))

    def _records(self, waiting: _Waiting) -> Iterator[LogRecord]:
        """Yield what is there as texts; called by the run's background thread."""
        waiting.is_asked = False  # before a line is taken: one that comes meanwhile asks again
        # As many as there are now; a loop until it is empty would not end while a program logs faster.
        taken = [waiting.lines.popleft() for _ in range(len(waiting.lines))]
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
        self._waiting.clear()


def _is_our_thread() -> bool:
    # Those that write beside a run, such as a diagnostic's, are known by their names alone.
    return is_own_thread() or threading.current_thread().name.startswith(("otel_ml", "otel-ml"))
