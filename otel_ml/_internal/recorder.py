"""The record path of one process, as the background thread sees it: collect, and what was counted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from otel_ml._internal.sequence import Sequence

__all__ = ["Batch", "RecordSettings", "Recorder", "recorder"]


class Batch(NamedTuple):
    """What one collection produced, ready to be wrapped into OTLP requests.

    Attributes:
        scope_metrics: each the body of an OTLP ScopeMetrics (without outer tag and length), `ml.seq` inside.
        scope_spans: each the body of an OTLP ScopeSpans.
        points: metric points in it; manifests and positions are not counted.
        values: the user's values folded into it.
        steps: (axis, step, points): what leaves the manifest when the spool has to drop this batch.
    """

    scope_metrics: tuple[bytes, ...] = ()
    scope_spans: tuple[bytes, ...] = ()
    points: int = 0
    values: int = 0
    steps: tuple[tuple[str, int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class RecordSettings:
    """What the record path needs to know of the configuration."""

    flush_interval_ns: int = 1_000_000_000
    allowed_lateness_ns: int = 10_000_000_000
    timer_level: int = 1
    traces: Literal["timers", "off"] = "timers"
    spans_per_step: int = 100
    strict: bool = False


class Recorder:
    """One per process: `recorder`. Created at import; `configure()` and `enabled` are `init()`'s business."""

    def __init__(self) -> None:
        self.sequence = Sequence()

    def configure(self, settings: RecordSettings, *, otel_tracing: bool = False) -> None:
        """Use `settings`; with `otel_tracing`, timers become OpenTelemetry's current span."""
        raise NotImplementedError

    @property
    def enabled(self) -> bool:
        """Whether recording calls do anything."""
        raise NotImplementedError

    @enabled.setter
    def enabled(self, value: bool) -> None:
        raise NotImplementedError

    def collect(self, now_ns: int, *, final: bool = False) -> Batch:
        """Take everything recorded so far as wire bytes. Called by the background thread only."""
        raise NotImplementedError

    def step_boundary(self) -> int:
        """A number that grows at each boundary of `set_step()`, `step()` and `steps()`."""
        raise NotImplementedError

    def points_dropped(self, axis: str, step: int, points: int) -> None:
        """Take points that the spool dropped out of the step's manifest."""
        raise NotImplementedError

    def after_fork_in_child(self) -> None:
        """Empty the buffers, with new locks, `ml.seq` from 1 and no current step."""
        raise NotImplementedError

    @property
    def recorded(self) -> int:
        """Values the user recorded that were accepted."""
        raise NotImplementedError

    @property
    def dropped(self) -> Mapping[str, int]:
        """Values not accepted or lost, by reason."""
        raise NotImplementedError

    @property
    def overhead_s(self) -> float:
        """Estimated seconds spent on the user's threads."""
        raise NotImplementedError


recorder = Recorder()
