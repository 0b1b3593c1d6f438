"""What the five processes of `otel-ml demo` send is what the registry in `semconv/` says."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from otel_ml_service.demo.launch import Launch, launch
from otel_ml_service.stored_runs.run_folders import RunFolder
from tests.docs.sent import contradictions
from tests.otlp_server import otlp_server

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

STEPS = 40
"""Two checkpoints: the evaluator is killed after the second."""

METRICS = {"loss", "accuracy", "grad_norm", "samples", "learning_rate"}
TIMERS = {"forward", "backward", "sync", "optimizer"}
"""What trainer and evaluator of the demo name themselves."""


def test_each_name_that_the_demo_sends_is_registered_or_its_own(tmp_path: Path) -> None:
    with otlp_server() as server:

        class ToTheTest(Launch):
            def environment(self, rank: int, world_size: int) -> Mapping[str, str]:
                said = {"OTEL_ML_MODE": "remote", "OTEL_EXPORTER_OTLP_ENDPOINT": server.url}
                return {**super().environment(rank, world_size), **said}

        launch(
            ToTheTest(RunFolder(tmp_path / "digits" / "registry"), (), STEPS, on_progress=lambda: None, on_event=print)
        )
        messages = [message for _, _, message in server.requests]

    assert {point.name for point in server.points()} > METRICS | {f"time/{name}" for name in TIMERS}
    assert {span.name for span, _ in server.spans()} > TIMERS
    assert {event.name for event in server.events()} >= {"ml.params", "ml.image", "ml.table", "ml.artifact"}
    assert contradictions(messages, metrics=METRICS, timers=TIMERS) == []
