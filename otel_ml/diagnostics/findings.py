"""Slow and silent ranks, and pauses, as the service finds them, for a program that acts on them.

```python
from otel_ml.diagnostics import findings

with findings.watch(lambda finding: print(finding)):
    train()
```
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, fields
from types import TracebackType
from typing import Any

from otel_ml._internal.lifecycle.runtime import RUNTIME
from otel_ml.exceptions import ConfigError
from otel_ml.warn_once import reporter

__all__ = ["Finding", "Watch", "watch"]

_GRACE_S = 2.0
"""How long `stop()` waits for the service, or a callback that is running."""

_LAST_S = 0.1
"""Seconds between two questions then."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A rank or a host that is slow in a phase, a silent rank, a stage with more work, shape of the data, pauses.

    Attributes:
        kind: `slow` or `silent`, of a rank; `stage` where a stage has more work than the others; `load` where ranks are
            always given more to do, and are not slow; `shape` where the times of ranks go up and down together, with
            what they are given, and nobody is slow; `pause` where the job stands still now and then.
        role, rank: which process; the rank is None where it is not a rank, or several of a place.
        phase: name of the timer without `time/`; empty for a silent rank and a stage, two timers for a shape; empty for
            pauses in whatever ranks work at.
        level: `warning` or `critical`.
        axis: of the steps `since` (the first one of the trouble) and `last` (the newest one looked at).
        attempt: how many restarts of the job came before.
        is_over: the rank is as quick as the others again, or was heard again; there were no pauses for long.
        slowdown: how much longer than the usual rank (the other stages, the mean rank) it takes, as a share of the
            usual time: lately, or over all steps since `since` where it is over.
        extra_s: the same in seconds per step.
        cost_s: the same, summed since `since`.
        trace_id, span_id: of the span that shows it, in hexadecimal digits; empty where its rank sent none.
        span_name, span_step: which timer that is, and of which step: the nearest one where spans were limited, the last
            one of a rank that fell silent.
        place: where it is: `rank 3`, `stage 3`, `host n3`, `dp 2`, or `nobody`; empty where an older service found it.
        stage: of a `stage`, which one.
        correlation: of a `shape`, between its two timers.
        saved_s: seconds that a step would be shorter without it.
        ranks: of a host, or another place of several ranks, which of them are slow; of a `load`, which have more.
        times: of a `pause`, how many steps had one.
        every: of a `pause`, the steps from one to the next; None where they come as they like.
        amount: the metric that says how much ranks are given to do; empty where none does.
        given: of a `load`, how many times as much as the other ranks.
        others_wait: of who is slow, whether most other ranks wait for it; where they do not, as generators that have
            steps of their own, no step of theirs is shorter without it, and `saved_s` is 0.
    """

    kind: str
    role: str
    rank: int | None
    phase: str
    level: str
    axis: str
    attempt: int
    since: int
    last: int
    is_over: bool
    slowdown: float
    extra_s: float
    cost_s: float
    trace_id: str = ""
    span_id: str = ""
    span_name: str = ""
    span_step: int | None = None
    place: str = ""
    stage: int | None = None
    correlation: float | None = None
    saved_s: float = 0.0
    ranks: tuple[int, ...] = ()
    times: int = 0
    every: int | None = None
    amount: str = ""
    given: float = 0.0
    others_wait: bool = True


class Watch:
    """A thread that asks the service; made by `watch()`. A context manager that stops it at the end of the block."""

    def __init__(self, callback: Callable[[Finding], object], every_s: float) -> None:
        self._callback = callback
        self._every_s = every_s
        self._told: dict[tuple[object, ...], tuple[str, bool]] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work, name="otel-ml-findings", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ask until the service has decided all that arrived, at most 2 s, and end. Safe twice.

        A callback that hangs is left behind.
        """
        self._stopping.set()
        # A callback may stop its own watch, and a thread that joins itself raises.
        if self._thread is not threading.current_thread():
            self._thread.join(_GRACE_S)

    def __enter__(self) -> Watch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def _work(self) -> None:
        while not self._stopping.wait(self._every_s):
            self._ask()
        deadline = time.monotonic() + _GRACE_S
        # What the job recorded last may have arrived and not be decided yet: `pending` says so.
        while self._ask() and time.monotonic() < deadline:
            time.sleep(_LAST_S)

    def _ask(self) -> bool:
        """Tell what is new; return whether the service has still to decide about something that arrived."""
        # By HTTP, from this thread: None where no service answers.
        status = RUNTIME.status()
        try:
            self._tell((status or {}).get("id"), _found(status))
        except Exception as error:  # noqa: BLE001 (a program's callback raises what it likes)
            reporter.say(
                "findings-callback",
                f"A callback of otel_ml.diagnostics.findings.watch() raised {type(error).__name__}: {error}. "
                "It is called again for the next finding; training is not affected.",
            )
        return bool((status or {}).get("pending"))

    def _tell(self, run_id: object, found: Iterable[Finding]) -> None:
        for finding in found:
            key = (
                run_id,
                finding.kind,
                finding.role,
                finding.axis,
                finding.attempt,
                finding.rank,
                finding.stage,
                finding.place,
                finding.phase,
                finding.since,
            )
            state = (finding.level, finding.is_over)
            if self._told.get(key) != state:
                self._told[key] = state  # before the call: what raises is not told again and again
                self._callback(finding)


def watch(callback: Callable[[Finding], object], *, every_s: float = 1.0) -> Watch:
    """Call `callback` with every finding that begins, changes its level, or ends; on a thread of its own.

    Which rank is slow is known in the service, so each process that calls this asks it over HTTP; one process a job is
    enough. Nothing is found where no otel_ml service answers (behind a Collector). Whatever the callback does, raise or
    hang, the training does not notice.

    Args:
        callback: takes a `Finding`.
        every_s: seconds between two questions.

    Raises:
        ConfigError: `callback` cannot be called, or `every_s` is not above 0.
    """
    if not callable(callback):
        raise ConfigError(
            f"watch() was given {callback!r:.80}. Expected a function of one finding.", slug="findings-callback"
        )
    if not every_s > 0:
        raise ConfigError(f"watch(): every_s is {every_s!r}. Expected seconds above 0.", slug="findings-callback")
    return Watch(callback, every_s)


_NAMES = tuple(field.name for field in fields(Finding))
_REQUIRED = frozenset(field.name for field in fields(Finding) if field.default is MISSING)


def _found(status: Mapping[str, Any] | None) -> list[Finding]:
    """Return the findings in the service's account; a newer service may say more of each, an older one less."""
    entries = (status or {}).get("findings") or ()
    return [
        Finding(**{name: entry[name] for name in _NAMES if name in entry} | {"ranks": tuple(entry.get("ranks", ()))})
        for entry in entries
        # One of an older service that lacks what a `Finding` has to have is left out, and not made up.
        if entry.keys() >= _REQUIRED
    ]
