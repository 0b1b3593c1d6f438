from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from otel_ml._internal.lifecycle.isolation import forget_everything
from otel_ml._internal.messages.recorder import Batch, Recorder, RecordSettings, recorder


class Recorded:
    """A process that records, and whose background thread is the test."""

    recorder: Recorder = recorder

    def collect(self, *, after_s: float = 0.0, final: bool = False) -> Batch:
        """Collect as if `after_s` seconds had passed."""
        return recorder.collect(time.time_ns() + int(after_s * 1e9), final=final)

    def configure(self, *, otel_tracing: bool = False, **settings: object) -> None:
        recorder.configure(RecordSettings(**settings), otel_tracing=otel_tracing)  # type: ignore[arg-type]


@pytest.fixture
def recorded() -> Iterator[Recorded]:
    forget_everything()
    recorder.enabled = True
    yield Recorded()
    forget_everything()
